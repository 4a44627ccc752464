//! The options of each kind of roles. They are those flags of the commands that a campaign has a
//! use for; none names a file, a program or an interface, and none is a secret.

use super::Becomes::{Argument, Flag, Key, Switch, Table};
use super::{Becomes, OptionSpec, RoleKind, Value};

/// What makes requests and sees replies.
const ENGINES: Value = Value::Choice(&["auto", "udp", "packet", "xdp"]);
/// More threads or flows than a machine has cores help nobody.
const THREADS: Value = Value::Count(1_024);
/// What fits into a datagram of IPv4, with what a request has in it.
const DATAGRAMS: Value = Value::Sizes(48, 65_507);
/// What the far end of a connection takes.
const MESSAGES: Value = Value::Sizes(1, 64 << 20);

const fn option(
    name: &'static str,
    value: Value,
    becomes: Becomes,
    says: &'static str,
) -> OptionSpec {
    OptionSpec { name, value, required: false, many: false, becomes, says }
}

impl OptionSpec {
    const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    const fn many(self) -> Self {
        Self { many: true, ..self }
    }
}

const SERVE: &[OptionSpec] = &[
    option("listen", Value::Listen, Flag("--listen"), "where it answers").required().many(),
    option("local", Value::Switch, Switch("--local"), "serve the clock as it is, as if right"),
    option("engine", Value::Choice(&["auto", "xdp", "socket"]), Flag("--engine"), "what answers"),
    option("threads", THREADS, Flag("--threads"), "threads of the socket engine"),
    option("stratum", Value::Count(15), Flag("--stratum"), "stratum to claim"),
];

/// A rate is required, for without one a ramp goes up to a million requests in a second.
const LOAD: &[OptionSpec] = &[
    option("target", Value::Target, Argument, "the server").required(),
    option("rate", Value::Rates, Flag("--rate"), "requests in a second: one rate, or a ramp")
        .required(),
    option("time", Value::Time, Flag("--time"), "how long each rate is held"),
    option("engine", ENGINES, Flag("--engine"), "how requests are sent"),
    option("clients", Value::Count(1_000_000), Flag("--clients"), "simulated clients"),
    option("threads", THREADS, Flag("--threads"), "sending threads"),
    option("timeout", Value::Time, Flag("--timeout"), "how long a reply may take"),
    option("exponential", Value::Switch, Switch("--exponential"), "space requests at random"),
];

const QUERY: &[OptionSpec] = &[
    option("target", Value::Target, Argument, "the servers").required().many(),
    option("count", Value::Count(1_000_000), Flag("--count"), "exchanges with each"),
    option("interval", Value::Time, Flag("--interval"), "from one exchange to the next"),
    option("timeout", Value::Time, Flag("--timeout"), "how long a reply may take"),
];

const PATH_SERVE: &[OptionSpec] = &[
    option("listen", Value::Listen, Flag("--listen"), "where it answers").required().many(),
    option("busy-poll", Value::Switch, Switch("--busy-poll"), "look for datagrams all the time"),
];

const PATH_UDP: &[OptionSpec] = &[
    option("target", Value::Target, Argument, "the far end").required(),
    option("sizes", DATAGRAMS, Flag("--sizes"), "bytes of payload, a row for each"),
    option("time", Value::Time, Flag("--time"), "how long a row takes"),
    option("rate", Value::Rate, Flag("--rate"), "requests in a second; else one after the other"),
    option("flows", Value::Count(64), Flag("--flows"), "flows side by side"),
    option("timeout", Value::Time, Flag("--timeout"), "how long a reply may take"),
    option("busy-poll", Value::Switch, Switch("--busy-poll"), "look for replies all the time"),
    option("timestamps", Value::Switch, Switch("--timestamps"), "have the kernels take them too"),
];

const PATH_TCP: &[OptionSpec] = &[
    option("target", Value::Target, Argument, "the far end").required(),
    option("sizes", MESSAGES, Flag("--sizes"), "bytes of messages, a row for each"),
    option("latency", Value::Switch, Switch("--latency"), "measure latency alone"),
    option("bandwidth", Value::Switch, Switch("--bandwidth"), "measure bandwidth alone"),
    option("time", Value::Time, Flag("--time"), "how long a row takes"),
    option("connections", Value::Count(1_024), Flag("--connections"), "connections side by side"),
    option("no-delay", Value::Switch, Switch("--no-delay"), "send every message at once"),
];

const RELAY_RUN: &[OptionSpec] = &[
    option("listen", Value::Listen, Key("listen"), "where packets come to").required(),
    option("source", Value::Network, Key("sources"), "whose packets are relayed").required().many(),
    option("child", Value::TargetPort, Key("children"), "who gets copies").many(),
    option("rate", Value::Rate, Key("rate"), "packets in a second, at most").required(),
    option(
        "engine",
        Value::Choice(&["auto", "send", "sendmmsg", "xdp"]),
        Flag("--engine"),
        "what makes the copies",
    ),
];

const HOST_TIMER: &[OptionSpec] = &[
    option("interval", Value::Time, Flag("--interval"), "the period of each thread"),
    option("time", Value::Time, Flag("--time"), "how long to measure"),
];

/// What one task is, which a file of tasks says instead.
const ONE_TASK: &[&str] =
    &["period", "compute", "deadline", "message", "to", "barrier", "policy", "priority", "core"];

const CYCLE_LEAD: &[OptionSpec] = &[
    option("listen", Value::Listen, Flag("--listen"), "where the others join").required(),
    option("nodes", Value::Count(256), Flag("--nodes"), "how many there are, with this one")
        .required(),
    option("period", Value::Time, Flag("--period"), "from one release to the next").required(),
    option("compute", Value::Time, Flag("--compute"), "how long a period computes").required(),
    option("deadline", Value::Time, Flag("--deadline"), "from a release to its work's end"),
    option("message", Value::Size, Flag("--message"), "bytes that nodes send to each other"),
    option("to", Value::Choice(&["all", "next"]), Flag("--to"), "to whom a message goes"),
    option("barrier", Value::Switch, Switch("--barrier"), "wait for all nodes at a period's end"),
    option("divide", Value::Switch, Switch("--divide"), "divide what is computed among nodes"),
    option(
        "policy",
        Value::Choice(&["fifo", "rr", "other", "deadline"]),
        Flag("--policy"),
        "how tasks are scheduled",
    ),
    option("priority", Value::Count(99), Flag("--priority"), "the real-time priority"),
    option("slow", Value::Factor, Flag("--slow"), "which node computes how many times as much")
        .many(),
    option("tasks", Value::Tasks, Table(ONE_TASK), "a task file, in place of what one task is"),
    option("core", Value::Cores, Flag("--core"), "to which core each node is tied, in turn"),
    option(
        "signal",
        Value::Choice(&["clock", "udp"]),
        Flag("--signal"),
        "what releases periods: each node's own clock, or a datagram",
    ),
    option("max-offset", Value::Time, Flag("--max-offset"), "how far a node's clock may be off"),
    option("time", Value::Time, Flag("--time"), "how long to run"),
];

const CYCLE_JOIN: &[OptionSpec] = &[
    option("target", Value::TargetPort, Flag("--join"), "where the first node listens").required(),
    option("name", Value::Name, Flag("--name"), "what this node is called").required(),
];

pub(super) const fn of(kind: RoleKind) -> &'static [OptionSpec] {
    match kind {
        RoleKind::Serve => SERVE,
        RoleKind::LoadNtp | RoleKind::LoadPtpDelay => LOAD,
        RoleKind::Query => QUERY,
        RoleKind::PathServe => PATH_SERVE,
        RoleKind::PathUdp => PATH_UDP,
        RoleKind::PathTcp => PATH_TCP,
        RoleKind::RelayRun => RELAY_RUN,
        RoleKind::HostTimer => HOST_TIMER,
        RoleKind::CycleLead => CYCLE_LEAD,
        RoleKind::CycleJoin => CYCLE_JOIN,
    }
}
