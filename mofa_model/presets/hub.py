"""A model's config.json by its id on a model hub; what was fetched once is read from the cache from then on.

Endpoint, token, cache and offline mode are those of the library's own variables: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_OFFLINE.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from mofa_model.errors import BadValue, InputError, SourceUnreachable, install_of

ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
"""What an id looks like: who published the model, and its name."""

_FILE: Final = "config.json"
_INSTEAD: Final = "or give its file: --model config.json"


def config_file(name: str, *, field: str) -> Path | None:
    """The file of a model, from the cache or fetched into it; None where the hub shows no such model. `field` names it in errors."""
    import logging

    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        right = f"{install_of('hub')} to read it from the hub"
        raise InputError(
            f"{field}: {name!r} is no preset, and huggingface_hub is not installed; {right}, {_INSTEAD}"
        ) from None
    logging.getLogger("huggingface_hub").setLevel(
        logging.CRITICAL
    )  # what matters is said in one line, here
    try:
        if isinstance(cached := hub.try_to_load_from_cache(name, _FILE), str):
            return Path(cached)
        # The download alone would try for half a minute before it says what is wrong.
        hub.get_hf_file_metadata(hub.hf_hub_url(name, _FILE))
        return Path(hub.hf_hub_download(name, _FILE))
    except errors.HFValidationError:
        raise BadValue(field, name, "a model's id on the hub is ORGANISATION/NAME") from None
    except errors.OfflineModeIsEnabled:
        why = "it is not in the cache, and HF_HUB_OFFLINE forbids to fetch it"
        raise SourceUnreachable(f"{field}: {name}: {why}; {_INSTEAD}") from None
    except errors.GatedRepoError:
        right = f"its terms are to be accepted on the hub, and HF_TOKEN set; {_INSTEAD}"
        raise InputError(
            f"{field}: {name}: the hub keeps this model's files behind terms; {right}"
        ) from None
    except errors.RepositoryNotFoundError:
        return None
    except errors.EntryNotFoundError:
        raise InputError(
            f"{field}: {name}: the hub has no {_FILE} of this model; {_INSTEAD}"
        ) from None
    except Exception as error:  # noqa: BLE001 - whatever the library's own HTTP client raises
        why = str(error).partition("\n")[0][:160]
        raise SourceUnreachable(
            f"{field}: {name}: the hub did not answer: {why}; {_INSTEAD}"
        ) from None
