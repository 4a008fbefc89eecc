"""What people have, read: scripts, files of settings, models, machines. Nothing in it is run.

May import: identity, presets, yaml_text, files. Imported by: answers, verbs.

    read([PastedText(text, name), …])   PastedFacts: kind, trainer, facts with their places
    missing(pasted_facts)           what has to be asked

    recognise   what a text is, by what stands in it, and whose
    wrapped     code of notebooks and pages, and the settings that a log prints
    scripts     a script as its author means it, followed by `identity.sbatch`
    machines    nvidia-smi, sinfo, scontrol, directives, and devices in comments
    lookup      settings looked up by the keys of words.toml, which has every trainer's words
    choices     precision, sharding, recomputation, offloading, optimizer: rules, the surest first
    tasks       the model's name, and what is trained
    sums        what several settings say together
    spoken      words of other programs as options; `sentence`, loose words; `model_names`,
    spellings of models launches    on how many devices a command is started
"""
