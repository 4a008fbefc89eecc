"""Questions in words and their answers: what every door asks, the command, Python, a page.

May import: everything in `mofa_model` but `cli` and `verbs`. Imported by: verbs, and `mofa_model` itself, which offers the functions.

    door       a question's class as a function's signature; errors in the words of Python; what every answer can do
    training   a model, its training, its machines: shared by `advise`, `explain` and `sweep`
    job        a job, its failures, its checkpoints: shared by `ettr` and `simulate`
    advise explain ettr simulate sweep    one file a question: its words, the function, its answer
    documents  what an answer is for machines, typed: `-o json` and `to_dict`
"""
