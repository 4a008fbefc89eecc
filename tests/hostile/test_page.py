"""Who asks for the page of very many jobs keeps the event loop for no time that anybody
would notice.
"""

import asyncio
import copy
import gc
import threading
import time

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from operator_objects import profile, training_job

from mofa_operator.control.pages import Pages
from mofa_operator.keys import CLUSTER_PROFILE, TRAINING_JOB
from mofa_operator.observe.cluster.store import Store
from mofa_operator.page.server import routes

JOBS, PROFILES = 2000, 100
SHARE = 0.25
"""Longest time of one call in the loop's thread, over the time in which the largest page is
written. [1]
"""


def test_a_page_of_very_many_jobs_and_profiles_is_written_beside_the_loop(monkeypatch):
    store, first = Store(), training_job("j")
    for number in range(PROFILES):
        store.put(CLUSTER_PROFILE, profile(f"p{number}"))
    for number in range(JOBS):
        metadata = first["metadata"] | {"name": f"j{number}", "uid": f"u{number}"}
        store.put(TRAINING_JOB, copy.deepcopy(first | {"metadata": metadata}))
    held, run = [], asyncio.Handle._run

    def timed(handle):
        began = time.thread_time()
        run(handle)
        held.append(time.thread_time() - began)

    written, taken = set(), []
    for name in ("jobs_page", "profiles_page", "profile_page"):
        whole = getattr(__import__("mofa_operator.page.server", fromlist=[name]), name)

        def noted(*given, whole=whole):
            written.add(threading.current_thread())
            began = time.thread_time()
            page = whole(*given)
            taken.append(time.thread_time() - began)
            return page

        monkeypatch.setattr(f"mofa_operator.page.server.{name}", noted)

    async def main():
        app = web.Application()
        app.add_routes(routes(Pages(store=store, model_pool=None, api=None, health=lambda _: "")))
        async with TestClient(TestServer(app)) as client:
            monkeypatch.setattr(asyncio.Handle, "_run", timed)
            for path, part in (
                ("/", "j1"),
                ("/profiles", f"p{PROFILES - 1}"),
                ("/profiles/p7", "p7"),
            ):
                async with client.get(path) as answer:
                    assert answer.status == 200
                    assert part in await answer.text()

    gc.collect()
    gc.freeze()  # what other tests left is looked through in no call
    asyncio.run(main())
    assert threading.main_thread() not in written
    assert max(held) < SHARE * max(taken), (max(held), taken)
