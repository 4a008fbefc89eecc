"""What an axis of the strategy is made of.

The axes themselves are the rows of `strategy.AXES`, beside the fields of a strategy.

May import: schedules, spec and what stands below. Imported by: strategy and what stands above it.

    axis           the type of a row: its values, rules, what of a step it changes, and its words:
                   keys of strategy texts, constraints and manifests
    choices        the values that are no plain numbers
    tried          which values the search tries by itself
    rules          what makes a shape legal, and a feature beside it; rejection names the reasons
    frameworks     what a trainer can run (frameworks.toml)
"""
