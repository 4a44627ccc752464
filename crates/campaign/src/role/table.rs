//! Options of each kind of roles: the flags of its command that are useful in a campaign. For
//! security, no option names a file, a program or an interface, and none is a secret.

use super::RoleOptionMapping::{Argument, Flag, Key, Switch, Table};
use super::{RoleKind, RoleOptionMapping, RoleOptionSpec, RoleOptionType};

/// Engines that send requests and receive replies.
const ENGINES: RoleOptionType = RoleOptionType::Choice(&["auto", "udp", "packet", "xdp"]);
/// Number of threads, up to 1024.
const THREADS: RoleOptionType = RoleOptionType::Count(1_024);
/// Payload sizes of a datagram over IPv4, in bytes; at least the header of a request.
const DATAGRAMS: RoleOptionType = RoleOptionType::Sizes(16, 65_507);
/// Message sizes that the far end of a TCP connection accepts, in bytes.
const MESSAGES: RoleOptionType = RoleOptionType::Sizes(1, 64 << 20);

const fn option(
    name: &'static str,
    value_type: RoleOptionType,
    maps_to: RoleOptionMapping,
    help: &'static str,
) -> RoleOptionSpec {
    RoleOptionSpec { name, value_type, required: false, many: false, maps_to, help }
}

impl RoleOptionSpec {
    const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    const fn many(self) -> Self {
        Self { many: true, ..self }
    }
}

const SERVE: &[RoleOptionSpec] = &[
    option("listen", RoleOptionType::Listen, Flag("--listen"), "addresses to serve")
        .required()
        .many(),
    option(
        "local",
        RoleOptionType::Switch,
        Switch("--local"),
        "serve the system clock as if synchronised",
    ),
    option(
        "engine",
        RoleOptionType::Choice(&["auto", "xdp", "socket"]),
        Flag("--engine"),
        "engine",
    ),
    option("threads", THREADS, Flag("--threads"), "threads of the socket engine"),
    option("stratum", RoleOptionType::Count(15), Flag("--stratum"), "stratum to report"),
];

/// Options of load kinds. A rate is required, because the command's default is a ramp up to a
/// million requests per second.
const LOAD: &[RoleOptionSpec] = &[
    option("target", RoleOptionType::Target, Argument, "the server").required(),
    option(
        "rate",
        RoleOptionType::Rates,
        Flag("--rate"),
        "requests per second: one rate, or a ramp",
    )
    .required(),
    option("time", RoleOptionType::Time, Flag("--time"), "duration of each rate"),
    option("engine", ENGINES, Flag("--engine"), "engine"),
    option("clients", RoleOptionType::Count(1_000_000), Flag("--clients"), "simulated clients"),
    option("threads", THREADS, Flag("--threads"), "sending threads"),
    option("timeout", RoleOptionType::Time, Flag("--timeout"), "reply timeout"),
    option(
        "exponential",
        RoleOptionType::Switch,
        Switch("--exponential"),
        "exponential spacing of requests",
    ),
];

const QUERY: &[RoleOptionSpec] = &[
    option("target", RoleOptionType::Target, Argument, "the servers").required().many(),
    option("count", RoleOptionType::Count(1_000_000), Flag("--count"), "exchanges with each"),
    option("interval", RoleOptionType::Time, Flag("--interval"), "interval of exchanges"),
    option("timeout", RoleOptionType::Time, Flag("--timeout"), "reply timeout"),
];

const PATH_SERVE: &[RoleOptionSpec] = &[
    option("listen", RoleOptionType::Listen, Flag("--listen"), "addresses to serve")
        .required()
        .many(),
    option("busy-poll", RoleOptionType::Switch, Switch("--busy-poll"), "busy-poll for datagrams"),
];

const PATH_UDP: &[RoleOptionSpec] = &[
    option("target", RoleOptionType::Target, Argument, "the far end").required(),
    option("sizes", DATAGRAMS, Flag("--sizes"), "payload bytes, a row for each"),
    option("time", RoleOptionType::Time, Flag("--time"), "duration of a row"),
    option(
        "rate",
        RoleOptionType::Rate,
        Flag("--rate"),
        "requests per second; otherwise one after the other",
    ),
    option("flows", RoleOptionType::Count(64), Flag("--flows"), "concurrent flows"),
    option("timeout", RoleOptionType::Time, Flag("--timeout"), "reply timeout"),
    option("busy-poll", RoleOptionType::Switch, Switch("--busy-poll"), "busy-poll for replies"),
    option(
        "timestamps",
        RoleOptionType::Switch,
        Switch("--timestamps"),
        "also take kernel timestamps",
    ),
];

const PATH_TCP: &[RoleOptionSpec] = &[
    option("target", RoleOptionType::Target, Argument, "the far end").required(),
    option("sizes", MESSAGES, Flag("--sizes"), "bytes of messages, a row for each"),
    option("latency", RoleOptionType::Switch, Switch("--latency"), "measure latency only"),
    option("bandwidth", RoleOptionType::Switch, Switch("--bandwidth"), "measure bandwidth only"),
    option("time", RoleOptionType::Time, Flag("--time"), "duration of a row"),
    option(
        "connections",
        RoleOptionType::Count(1_024),
        Flag("--connections"),
        "concurrent connections",
    ),
    option("no-delay", RoleOptionType::Switch, Switch("--no-delay"), "send every message at once"),
];

const RELAY_RUN: &[RoleOptionSpec] = &[
    option("listen", RoleOptionType::Listen, Key("listen"), "address of incoming packets")
        .required(),
    option("source", RoleOptionType::Network, Key("sources"), "networks of permitted sources")
        .required()
        .many(),
    option("child", RoleOptionType::TargetPort, Key("children"), "receivers of copies").many(),
    option("rate", RoleOptionType::Rate, Key("rate"), "maximum packets per second").required(),
    option(
        "engine",
        RoleOptionType::Choice(&["auto", "send", "sendmmsg", "xdp"]),
        Flag("--engine"),
        "engine",
    ),
];

const HOST_TIMER: &[RoleOptionSpec] = &[
    option("interval", RoleOptionType::Time, Flag("--interval"), "the period of each thread"),
    option("time", RoleOptionType::Time, Flag("--time"), "duration of the measurement"),
];

/// Options of a single task, all of which a task file replaces.
const SINGLE_TASK_OPTIONS: &[&str] =
    &["period", "compute", "deadline", "message", "to", "barrier", "policy", "priority", "core"];

const CYCLE_LEAD: &[RoleOptionSpec] = &[
    option(
        "listen",
        RoleOptionType::Listen,
        Flag("--listen"),
        "address for the other nodes to join",
    )
    .required(),
    option("nodes", RoleOptionType::Count(256), Flag("--nodes"), "number of nodes, with this one")
        .required(),
    option("period", RoleOptionType::Time, Flag("--period"), "interval of releases").required(),
    option("compute", RoleOptionType::Time, Flag("--compute"), "computation per period").required(),
    option(
        "deadline",
        RoleOptionType::Time,
        Flag("--deadline"),
        "from release to completion of the work",
    ),
    option(
        "message",
        RoleOptionType::Size,
        Flag("--message"),
        "bytes that nodes send to each other",
    ),
    option(
        "to",
        RoleOptionType::Choice(&["all", "next"]),
        Flag("--to"),
        "destinations of a message",
    ),
    option(
        "barrier",
        RoleOptionType::Switch,
        Switch("--barrier"),
        "barrier for all nodes at a period's end",
    ),
    option(
        "split-work",
        RoleOptionType::Switch,
        Switch("--split-work"),
        "divide the computation among nodes",
    ),
    option(
        "policy",
        RoleOptionType::Choice(&["fifo", "rr", "other", "deadline"]),
        Flag("--policy"),
        "scheduling policy of tasks",
    ),
    option("priority", RoleOptionType::Count(99), Flag("--priority"), "real-time priority"),
    option(
        "slow-node",
        RoleOptionType::Factor,
        Flag("--slow-node"),
        "factor of a node's computation",
    )
    .many(),
    option(
        "tasks",
        RoleOptionType::Tasks,
        Table(SINGLE_TASK_OPTIONS),
        "task file, instead of the options of one task",
    ),
    option("core", RoleOptionType::Cores, Flag("--core"), "core of each node, in turn"),
    option(
        "release-signal",
        RoleOptionType::Choice(&["clock", "udp"]),
        Flag("--release-signal"),
        "release signal: each node's own clock, or a datagram",
    ),
    option(
        "max-offset",
        RoleOptionType::Time,
        Flag("--max-offset"),
        "maximum clock offset of a node",
    ),
    option("time", RoleOptionType::Time, Flag("--time"), "duration of the run"),
];

const CYCLE_JOIN: &[RoleOptionSpec] = &[
    option("target", RoleOptionType::TargetPort, Flag("--join"), "address of the first node")
        .required(),
    option("name", RoleOptionType::Name, Flag("--name"), "name of this node").required(),
];

pub(super) const fn option_specs(kind: RoleKind) -> &'static [RoleOptionSpec] {
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
