"""Manifests in and out: our kinds parsed, jobs as questions, streams annotated, CRDs generated.

May import: kinds, annotations, advice, launch, presets and what stands below. Imported by: verbs,
and mofa_operator. Nothing is imported here: pydantic and the YAML parser are slow, and a command
that is given flags needs neither.

    our kinds           training_job · status · cluster_profile · failure_history · advisor_policy;
                        made of fields
    text to objects     documents (streams, edited in place) · parsing
    objects to SI       inputs.to_inputs (the one place) with failures
    jobs of any kind    jobs.job_question, with surroundings; draft has the spec that a job amounts
                        to; listing tells what each object is
    whole streams       stream.Annotator
    answers             advised (the status of a TrainingJob, and launch arguments)
    CRDs                crds (`python -m mofa_model.manifest.crds` writes crds/)
"""
