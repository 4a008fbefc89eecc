"""Questions and their answers: what the command, Python and a page ask.

May import: everything in `mofa_model` but `cli` and `verbs`. Imported by: verbs, and `mofa_model`,
which offers the functions.

    questions  every question, its fields declared once
    options    what a field of a question is: how command, Python and page ask it
    answer     the Python function of a question, and what every answer can do
    training   model, training and machines of a question; shared by `advise`, `explain` and `sweep`
    job        failures and checkpoints of a question; shared by `ettr` and `simulate`
    advise  explain  ettr  simulate  sweep    one file each: the function, its answer, its tables
    what_if    the same questions on a page
    pasted     what people have, answered; paste_question what it asks, paste_gaps what it leaves
    open,
               paste_script the script with the launch in it, paste_form the same on a page
"""
