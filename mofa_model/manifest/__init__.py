"""Manifests in and out: our kinds parsed and made into questions, whole streams annotated, CRDs generated.

May import: kinds, annotations, advice, launch, presets and what stands below. Imported by: verbs, and mofa_operator.
Nothing is imported here: pydantic and the YAML parser are slow, and a command that is given flags needs neither.

    what our kinds are     fields · architecture · training_job · status · cluster_profile · advisor_policy
    from text to objects   documents (streams, edited in place by edits) · parsing
    from objects to SI     inputs.to_inputs (the one place) with models and failures
    jobs of any kind       jobs.asked; surroundings finds the profile
    whole streams          stream.Annotator
    profiles by name       bundled: those that come with the package, or a file's
    CRDs                   schema · crds (`python -m mofa_model.manifest.crds` writes crds/)
"""
