"""Workers of one host follow each other."""

from daskkern.cluster.scheduler.hosts import grouped_by_host


def test_hosts_and_their_workers_stay_in_order() -> None:
    mixed = ["tcp://b:1", "tcp://a:1", "tls://b:2", "tcp://[::1]:5", "tcp://a:9", "tcp://b:0"]
    expected = ("tcp://b:1", "tls://b:2", "tcp://b:0", "tcp://a:1", "tcp://a:9", "tcp://[::1]:5")
    assert grouped_by_host(mixed) == expected
    assert grouped_by_host([]) == ()
