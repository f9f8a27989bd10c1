from sessions.topics import RunStarted, Topic, Touch, ids_of


def test_the_ids_of_one_topic():
    touched = frozenset({Touch(Topic.RUN, "1"), Touch(Topic.STOPPED, "2"), Touch(Topic.RUN, "3")})
    assert sorted(ids_of(Topic.RUN, touched)) == ["1", "3"]


def test_the_start_of_a_run_has_fields_of_its_own_and_is_found_by_the_key_of_its_message():
    started = RunStarted.by("call 7:a", "run", ask_id=3)
    assert (started.topic, started.id, started.run_id, started.ask_id) == (Topic.STARTED, "call 7:a", "run", 3)
    assert ids_of(Topic.STARTED, {started}) == ["call 7:a"]
