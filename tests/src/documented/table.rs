//! What the machine of a test has in place of what pages speak of, and every command that does
//! anything there but succeed, with the reason. Nothing is passed over: what stands in none of
//! these lists has to end with status 0, or go on until it is interrupted and then end with status
//! 0.

/// Pages whose readers are no administrators: what they do not type behind `sudo` is done by
/// another user, in a directory that is closed to others.
pub(crate) const OF_A_USER: &[&str] = &["docs/tutorial.md"];

/// Names that stand for the far host.
pub(crate) const NAMES: &[&str] = &[
    "time.example",
    "far.example",
    "router.example",
    "b.example",
    "db.example",
    "broker.example",
    "broker",
    "nas",
    "ntp.example",
];

/// The reader's host calls its interface eth0, and has another that leads nowhere.
pub(crate) const NEAR_NETWORK: &str = "
    ip link set veth0 down; ip link set veth0 name eth0; ip link set eth0 up
    ip link add eth1 type veth peer name eth1-end; ip link set eth1 up; ip link set eth1-end up
    ip address add 198.51.100.2/24 dev eth1
    ip route add default via 192.0.2.1 dev eth0";

/// The far host, where servers are that pages ask.
pub(crate) const FAR_NETWORK: &str = "
    ip link add eth1 type veth peer name eth1-end; ip link set eth1 up; ip link set eth1-end up
    ip link set veth0 down; ip link set veth0 name eth0; ip link set eth0 up
    ip address add 198.51.100.1/24 dev eth1
    for net in 10.0.0.0/8 172.16.0.0/12; do ip route add $net via 192.0.2.2 dev eth0; done";

/// What stands in for programs of a page's reader, and for those that no private host has.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("sudo", "[ \"$1\" = -E ] && shift; exec \"$@\""),
    // Whether there is such a target, and what it would do.
    ("make", "exec /usr/bin/make --silent --dry-run -C REPOSITORY \"$@\" > /dev/null"),
    ("systemctl", "exit 0"),
    ("apt", "exit 0"),
    ("editor", "exit 0"),
    ("podman", "exit 0"),
    ("mount", "exit 0"),
    ("backup", "exit 0"),
    ("sample", "exit 0"),
    ("first", "exit 0"),
    ("second", "exit 0"),
    ("one", "exit 0"),
    ("two", "exit 0"),
    ("start-service", "exit 0"),
    ("start-capture", "exit 0"),
];

/// A symmetric key, which the far host has too.
pub(crate) const KEYS: &str = "7 AES128 HEX:0123456789abcdef0123456789abcdef\n";

/// Files that pages name, each closed to other users.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("FILE", "a-token-of-more-than-16-bytes\n"),
    ("token", "a-token-of-more-than-16-bytes\n"),
    ("ntp.keys", KEYS),
    ("profile.toml", "[[phase]]\nname = \"day\"\nrate = 1000\nduration = \"1s\"\n"),
];

/// Files that stand on the pages themselves: the name, the page, and how the block begins.
pub(crate) const BLOCKS: &[(&str, &str, &str)] = &[
    ("table.toml", "docs/relay.md", "# Where copies may go."),
    ("tree.toml", "docs/relay.md", "nodes = ["),
    ("delays.csv", "docs/relay.md", "from,to,delay_us"),
    ("tasks.toml", "docs/cycle.md", "[[task]]"),
    ("test.toml", "docs/cycle-test.md", "schema = \"horolog.test/2\""),
    ("my-plan.toml", "docs/campaign.md", "schema = \"horolog.plan/2\""),
    ("plan.toml", "docs/campaign.md", "schema = \"horolog.plan/2\""),
];

/// Results that earlier commands of a page's reader have left.
pub(crate) const RESULTS: &[(&str, &str)] = &[
    ("host.json", "host_all.json"),
    ("path.json", "path_udp.json"),
    ("run.json", "cycle.json"),
    ("before.json", "load.json"),
    ("after.json", "load.json"),
];

/// What is put in another's place, because the test's machine is not the reader's.
pub(crate) const REPLACEMENTS: &[(&str, &str, &str)] = &[
    ("/usr/local/bin/", "usr-local-bin/", "programs of this machine stay as they are"),
    ("--leap-file FILE", "--leap-file leap-seconds.list", "a list is made here"),
    ("/usr/share/zoneinfo/leap-seconds.list", "leap-seconds.list", "not every system has one"),
    ("--smear-listen 192.0.2.2:123", "--smear-listen 198.51.100.1:123", "192.0.2.2 is the reader"),
    ("--nts-cert FILE --nts-key FILE", IDENTITY, "made for the test"),
    ("--nts-cert ... --nts-key ...", IDENTITY, "made for the test"),
    ("horolog host all --json host.json && ", "", "it takes a minute, and host.json is here"),
];

const IDENTITY: &str =
    "--nts-cert /etc/ssl/time.example.pem --nts-key /etc/ssl/private/time.example.key";

/// What a command asks of the far host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Far {
    /// A server of time with everything but PTP.
    Server,
    /// The same with a PTP master of this domain.
    Master(u8),
    /// The same and its counters.
    Counters,
    /// The far end of a path.
    Path,
}

impl Far {
    pub(crate) fn command(self) -> String {
        // What Horolog's own limits would do to a load is shown elsewhere.
        let serve = "horolog serve --local --listen 192.0.2.1:123 --keys /etc/horolog/ntp.keys \
                     --nts-ke-rate-per-prefix 0 --nts-ke-connections-per-prefix 0 \
                     --nts-cert /etc/ssl/time.example.pem \
                     --nts-key /etc/ssl/private/time.example.key";
        match self {
            Self::Server => serve.to_owned(),
            // So that it is the master soon: it waits for three announcements of others.
            Self::Master(domain) => format!(
                "{serve} --ptp eth0 --ptp-domain {domain} --ptp-announce-interval=-3 \
                 --ptp-netsync-monitor --ptp-unicast-allow 10.0.0.0/8 \
                 --ptp-unicast-allow 172.16.0.0/12"
            ),
            // A page may have its counters up already, and then these find no port.
            Self::Counters => {
                format!("horolog counters --listen 192.0.2.1:9323 --token-file FILE & {serve}")
            }
            Self::Path => "horolog path serve --stamp".to_owned(),
        }
    }

    /// How the command of a page begins that does the same, so that this is not to be had as well.
    pub(crate) fn own_command(self) -> &'static str {
        match self {
            Self::Path => "horolog path serve",
            _ => "horolog serve",
        }
    }

    /// What ends with status 0 when it answers.
    pub(crate) fn ready(self) -> String {
        let conditions = match self {
            Self::Server => "--udp 192.0.2.1:123 --tcp 192.0.2.1:4460",
            Self::Master(_) => "--udp 192.0.2.1:123 --succeeds 'horolog status | grep -q master'",
            Self::Counters => "--udp 192.0.2.1:123 --tcp 192.0.2.1:9323",
            Self::Path => "--tcp 192.0.2.1:8625",
        };
        format!("horolog after {conditions} --deadline 15s --retry-interval 20ms --quiet")
    }
}

/// What a command needs to be answered.
pub(crate) fn far(text: &str) -> Option<Far> {
    let text = own(text);
    let is_one_of = |all: &[&str]| all.iter().any(|words| text.starts_with(words));
    if text.contains("--counters ") {
        Some(Far::Counters)
    } else if is_one_of(&["horolog path udp", "horolog path tcp", "horolog path stall"]) {
        Some(Far::Path)
    } else if is_one_of(&["horolog load ptp", "horolog load mix"]) || is_ntpperf_ptp(text) {
        Some(Far::Master(if text.contains("--domain 24") { 24 } else { 0 }))
    } else if is_one_of(NEEDS_TIME_SERVER) {
        Some(Far::Server)
    } else {
        None
    }
}

/// Beginnings of commands that a server of time has to answer.
const NEEDS_TIME_SERVER: &[&str] = &[
    "horolog load",
    "horolog query",
    "horolog ntpperf",
    "ntpperf",
    "horolog status",
    "horolog clock show",
    "horolog clock log clock.jsonl --server",
    "horolog counters --once",
];

fn is_ntpperf_ptp(text: &str) -> bool {
    text.contains("ntpperf ") && [" -D ", " -N "].iter().any(|mode| text.contains(mode))
}

/// Whether a command is of the program itself.
pub(crate) fn is_ours(text: &str) -> bool {
    ["horolog ", "ntpperf "].iter().any(|name| own(text).starts_with(name))
}

/// A command without the right that it asks for: on the stage everybody is root.
fn own(text: &str) -> &str {
    text.strip_prefix("sudo ").unwrap_or(text)
}

/// Beginnings of commands that stay until they are told to end.
const LONG_RUNNING: &[&str] = &[
    "horolog serve",
    "horolog path serve",
    "horolog relay run",
    "horolog counters --listen",
    "horolog campaign agent",
    "nats-server",
    "horolog lab exec server horolog serve",
    "horolog cycle run -p 10ms -c 1ms -b --nodes 2 --listen",
];

/// Whether it stays. What only checks, or asks for help, does not.
pub(crate) fn stays(text: &str) -> bool {
    let ends = ["--check", "--show-policy", "--help"].iter().any(|flag| text.contains(flag));
    !ends && LONG_RUNNING.iter().any(|words| own(text).starts_with(words))
}

/// Whether it needs a terminal, on which it is looked at until a key ends it.
pub(crate) fn is_viewed(text: &str) -> bool {
    let command = text.split(" #").next().unwrap_or_default();
    command.split_whitespace().any(|word| word == "--live")
}

/// What one that stays answers when it is ready.
pub(crate) fn readiness_command(text: &str) -> Option<&'static str> {
    if own(text).starts_with("horolog relay run") {
        Some("horolog relay list")
    } else if own(text).starts_with("horolog serve") {
        Some("horolog status")
    } else {
        None
    }
}

/// Whether two that stay would be in each other's way.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    LONG_RUNNING.iter().any(|words| own(one).starts_with(words) && own(other).starts_with(words))
}

/// Whether a command is one of the far host: what others ask.
pub(crate) fn is_far(text: &str) -> bool {
    let ours = ["horolog serve", "horolog path serve", "horolog counters --listen", "nats-server"];
    let text = own(text);
    let near = text.contains("--listen 192.0.2.2 ");
    !near && ours.iter().any(|words| text.starts_with(words)) || text.contains("--nodes 2 --listen")
}

/// How a command ends here that does not end with status 0.
pub(crate) struct Exception {
    /// How it begins, from its first word on.
    pub(crate) begins: &'static str,
    /// Its exit status.
    pub(crate) status: i32,
    /// A part of what it says.
    pub(crate) message: &'static str,
    pub(crate) because: &'static str,
}

/// All of them.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        begins: "horolog serve --gnss /dev/ttyS0",
        status: 3,
        message: "/dev/pps0",
        because: "no receiver is at hand",
    },
    Exception {
        begins: "horolog serve --ptp eth1 --timestamps eth1=hardware",
        status: 3,
        message: "no hardware timestamps",
        because: "a virtual link has no card",
    },
    Exception {
        begins: "horolog clock compare /dev/ptp0",
        status: 3,
        message: "/dev/ptp0",
        because: "a virtual machine has no PTP clock",
    },
    Exception {
        begins: "horolog cycle run --period 10ms --program -- ./control",
        status: 3,
        message: "its first mark must be 'ready'",
        because: "the reader's program, which speaks the protocol, is not here",
    },
    Exception {
        begins: "horolog at '21:00 TAI'",
        status: 3,
        message: "--tai-offset 37",
        because: "nobody has told this kernel how far TAI is ahead",
    },
    Exception {
        begins: "horolog at cancel 7",
        status: 2,
        message: "job 7 not found",
        because: "seven jobs were not started before",
    },
    Exception {
        begins: "horolog campaign run --resume CAMPAIGN",
        status: 2,
        message: "invalid campaign name",
        because: "CAMPAIGN stands for the name of one that was interrupted",
    },
    Exception {
        begins: "horolog serve --ptp eth1 --gnss /dev/ttyS0",
        status: 3,
        message: "/dev/pps0",
        because: "no receiver is at hand",
    },
];
