//! Options of each kind of roles: the flags of its command that are useful in a campaign. For
//! security, no option names a file, a program or an interface, and none is a secret.

use super::ArgMapping::{Argument, Flag, Key, Switch, Table};
use super::{ArgMapping, OptionSpec, OptionType, RoleKind};

/// Engines that send requests and receive replies.
const ENGINES: OptionType = OptionType::Choice(&["auto", "udp", "packet", "xdp"]);
/// Number of threads, up to 1024.
const THREADS: OptionType = OptionType::Count(1_024);
/// Payload sizes of a datagram over IPv4, in bytes; at least the header of a request.
const DATAGRAMS: OptionType = OptionType::Sizes(16, 65_507);
/// Message sizes that the far end of a TCP connection accepts, in bytes.
const MESSAGES: OptionType = OptionType::Sizes(1, 64 << 20);

const fn option(
    name: &'static str,
    value_type: OptionType,
    maps_to: ArgMapping,
    help: &'static str,
) -> OptionSpec {
    OptionSpec { name, value_type, required: false, many: false, maps_to, help }
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
    option("listen", OptionType::Listen, Flag("--listen"), "addresses to serve").required().many(),
    option(
        "local",
        OptionType::Switch,
        Switch("--local"),
        "serve the system clock as if synchronised",
    ),
    option("engine", OptionType::Choice(&["auto", "xdp", "socket"]), Flag("--engine"), "engine"),
    option("threads", THREADS, Flag("--threads"), "threads of the socket engine"),
    option("stratum", OptionType::Count(15), Flag("--stratum"), "stratum to report"),
];

/// Options of load kinds. A rate is required, because the command's default is a ramp up to a
/// million requests per second.
const LOAD: &[OptionSpec] = &[
    option("target", OptionType::Target, Argument, "the server").required(),
    option("rate", OptionType::Rates, Flag("--rate"), "requests per second: one rate, or a ramp")
        .required(),
    option("time", OptionType::Time, Flag("--time"), "duration of each rate"),
    option("engine", ENGINES, Flag("--engine"), "engine"),
    option("clients", OptionType::Count(1_000_000), Flag("--clients"), "simulated clients"),
    option("threads", THREADS, Flag("--threads"), "sending threads"),
    option("timeout", OptionType::Time, Flag("--timeout"), "reply timeout"),
    option(
        "exponential",
        OptionType::Switch,
        Switch("--exponential"),
        "exponential spacing of requests",
    ),
];

const QUERY: &[OptionSpec] = &[
    option("target", OptionType::Target, Argument, "the servers").required().many(),
    option("count", OptionType::Count(1_000_000), Flag("--count"), "exchanges with each"),
    option("interval", OptionType::Time, Flag("--interval"), "interval of exchanges"),
    option("timeout", OptionType::Time, Flag("--timeout"), "reply timeout"),
];

const PATH_SERVE: &[OptionSpec] = &[
    option("listen", OptionType::Listen, Flag("--listen"), "addresses to serve").required().many(),
    option("busy-poll", OptionType::Switch, Switch("--busy-poll"), "busy-poll for datagrams"),
];

const PATH_UDP: &[OptionSpec] = &[
    option("target", OptionType::Target, Argument, "the far end").required(),
    option("sizes", DATAGRAMS, Flag("--sizes"), "payload bytes, a row for each"),
    option("time", OptionType::Time, Flag("--time"), "duration of a row"),
    option(
        "rate",
        OptionType::Rate,
        Flag("--rate"),
        "requests per second; otherwise one after the other",
    ),
    option("flows", OptionType::Count(64), Flag("--flows"), "concurrent flows"),
    option("timeout", OptionType::Time, Flag("--timeout"), "reply timeout"),
    option("busy-poll", OptionType::Switch, Switch("--busy-poll"), "busy-poll for replies"),
    option("timestamps", OptionType::Switch, Switch("--timestamps"), "also take kernel timestamps"),
];

const PATH_TCP: &[OptionSpec] = &[
    option("target", OptionType::Target, Argument, "the far end").required(),
    option("sizes", MESSAGES, Flag("--sizes"), "bytes of messages, a row for each"),
    option("latency", OptionType::Switch, Switch("--latency"), "measure latency only"),
    option("bandwidth", OptionType::Switch, Switch("--bandwidth"), "measure bandwidth only"),
    option("time", OptionType::Time, Flag("--time"), "duration of a row"),
    option(
        "connections",
        OptionType::Count(1_024),
        Flag("--connections"),
        "concurrent connections",
    ),
    option("no-delay", OptionType::Switch, Switch("--no-delay"), "send every message at once"),
];

const RELAY_RUN: &[OptionSpec] = &[
    option("listen", OptionType::Listen, Key("listen"), "address of incoming packets").required(),
    option("source", OptionType::Network, Key("sources"), "networks of permitted sources")
        .required()
        .many(),
    option("child", OptionType::TargetPort, Key("children"), "receivers of copies").many(),
    option("rate", OptionType::Rate, Key("rate"), "maximum packets per second").required(),
    option(
        "engine",
        OptionType::Choice(&["auto", "send", "sendmmsg", "xdp"]),
        Flag("--engine"),
        "engine",
    ),
];

const HOST_TIMER: &[OptionSpec] = &[
    option("interval", OptionType::Time, Flag("--interval"), "the period of each thread"),
    option("time", OptionType::Time, Flag("--time"), "duration of the measurement"),
];

/// Options of a single task, all of which a task file replaces.
const SINGLE_TASK_OPTIONS: &[&str] =
    &["period", "compute", "deadline", "message", "to", "barrier", "policy", "priority", "core"];

const CYCLE_LEAD: &[OptionSpec] = &[
    option("listen", OptionType::Listen, Flag("--listen"), "address for the other nodes to join")
        .required(),
    option("nodes", OptionType::Count(256), Flag("--nodes"), "number of nodes, with this one")
        .required(),
    option("period", OptionType::Time, Flag("--period"), "interval of releases").required(),
    option("compute", OptionType::Time, Flag("--compute"), "computation per period").required(),
    option(
        "deadline",
        OptionType::Time,
        Flag("--deadline"),
        "from release to completion of the work",
    ),
    option("message", OptionType::Size, Flag("--message"), "bytes that nodes send to each other"),
    option("to", OptionType::Choice(&["all", "next"]), Flag("--to"), "destinations of a message"),
    option(
        "barrier",
        OptionType::Switch,
        Switch("--barrier"),
        "barrier for all nodes at a period's end",
    ),
    option(
        "split-work",
        OptionType::Switch,
        Switch("--split-work"),
        "divide the computation among nodes",
    ),
    option(
        "policy",
        OptionType::Choice(&["fifo", "rr", "other", "deadline"]),
        Flag("--policy"),
        "scheduling policy of tasks",
    ),
    option("priority", OptionType::Count(99), Flag("--priority"), "real-time priority"),
    option("slow-node", OptionType::Factor, Flag("--slow-node"), "factor of a node's computation")
        .many(),
    option(
        "tasks",
        OptionType::Tasks,
        Table(SINGLE_TASK_OPTIONS),
        "task file, instead of the options of one task",
    ),
    option("core", OptionType::Cores, Flag("--core"), "core of each node, in turn"),
    option(
        "release-signal",
        OptionType::Choice(&["clock", "udp"]),
        Flag("--release-signal"),
        "release signal: each node's own clock, or a datagram",
    ),
    option("max-offset", OptionType::Time, Flag("--max-offset"), "maximum clock offset of a node"),
    option("time", OptionType::Time, Flag("--time"), "duration of the run"),
];

const CYCLE_JOIN: &[OptionSpec] = &[
    option("target", OptionType::TargetPort, Flag("--join"), "address of the first node")
        .required(),
    option("name", OptionType::Name, Flag("--name"), "name of this node").required(),
];

pub(super) const fn option_specs(kind: RoleKind) -> &'static [OptionSpec] {
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
