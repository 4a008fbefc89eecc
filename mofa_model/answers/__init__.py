"""Questions and their answers, the same for the command, for Python and for the pages.

May import: everything in `mofa_model` but `cli` and `verbs`. Imported by: verbs, and `mofa_model`,
which offers the functions.

    questions  the options of these questions, each declared once
    options    an option in general: its flag, its parameter of Python, its field of a page
    answer     the Python function of a question, and the methods of every answer
    training   search cases and request of a question; shared by `advise`, `explain` and `sweep`
    job        failures and checkpoints of a question; shared by `ettr` and `simulate`
    given      files and servers that such questions name; failure_files CSV files of failures
    advise  explain  ettr  simulate  sweep  which  check  rates  profile
               one module each: the function, its answer, its tables
    pasted     the answer to pasted texts; paste_gaps facts that they leave open, paste_question
               the question that they ask, paste_script the script with the launch in it
    forms      shared by the forms of pages: what_if, which_form and paste_form
"""
