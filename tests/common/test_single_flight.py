import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from deviceplugin._http.server import Shared
from patience import PATIENCE, eventually


class Answer:
    """The number of a making, and what was asked."""

    def __init__(self, number: int, question: str) -> None:
        self.number = number
        self.question = question


class Maker:
    """Makes answers, each of which waits until it may be given."""

    def __init__(self, failures: int = 0) -> None:
        self.made = 0
        self.failures = failures
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, question: str) -> Answer:
        self.made += 1
        number = self.made
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        if number <= self.failures:
            raise LookupError(number)
        return Answer(number, question)


def ask_while_it_is_made(maker: Maker, questions: list[str]) -> list[Future[Answer]]:
    """Ask the first, and all the others once that is being made; return the answers."""
    shared = Shared(maker)
    with ThreadPoolExecutor(len(questions)) as pool:
        answers = [pool.submit(shared, questions[0])]
        assert maker.begun.wait(PATIENCE)
        answers += [pool.submit(shared, question) for question in questions[1:]]
        eventually(lambda: len(questions) == shared._asking, "all to ask", every=0.001)
        maker.may_end.set()
    assert shared._made is None
    return answers


def test_those_who_ask_while_an_answer_is_made_share_the_next_one() -> None:
    maker = Maker()
    answers = [answer.result() for answer in ask_while_it_is_made(maker, [""] * 20)]
    assert [1] + [2] * 19 == [answer.number for answer in answers]
    assert 2 == maker.made


def test_who_asks_later_gets_a_new_answer() -> None:
    maker = Maker()
    maker.may_end.set()
    shared = Shared(maker)
    assert [1, 2, 3] == [shared().number for _ in range(3)]


def test_nobody_gets_the_answer_to_another_question() -> None:
    questions = ["a", "b", "c", "b", "a"]
    answers = [answer.result() for answer in ask_while_it_is_made(Maker(), questions)]
    assert questions == [answer.question for answer in answers]


def test_an_answer_that_cannot_be_made_is_tried_by_the_next_who_asked() -> None:
    maker = Maker(failures=2)
    answers = ask_while_it_is_made(maker, [""] * 5)
    failed = [answer for answer in answers if answer.exception()]
    assert ["LookupError"] * 2 == [type(answer.exception()).__name__ for answer in failed]
    assert {3} == {answer.result().number for answer in answers if answer not in failed}
    with pytest.raises(LookupError):
        answers[0].result()


def test_no_answer_is_kept_when_nobody_asks() -> None:
    maker = Maker()
    maker.may_end.set()
    shared = Shared(maker)
    kept = weakref.ref(shared())
    assert kept() is None
    assert 2 == shared().number
