//! What the machine of a test has in place of what pages speak of, and every command that does
//! anything there but succeed, with the reason. Nothing is passed over: what stands in none of these
//! lists has to end with status 0, or go on until it is interrupted and then end with status 0.

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
    ("mount", "exit 0"),
    ("backup", "exit 0"),
    ("sample", "exit 0"),
    ("first", "exit 0"),
    ("second", "exit 0"),
    ("one", "exit 0"),
    ("two", "exit 0"),
    ("start-service", "exit 0"),
    ("start-capture", "exit 0"),
    ("perf", "exit 0"),
    ("pmc", "exit 0"),
];

/// Files that pages name, each closed to other users.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("FILE", "a-token-of-more-than-16-bytes\n"),
    ("ntp.keys", "7 AES128 HEX:0123456789abcdef0123456789abcdef\n"),
    ("profile.toml", "[[phase]]\nname = \"day\"\nrate = 1000\nduration = \"1s\"\n"),
    ("tasks.toml", "[[task]]\nname = \"control\"\nperiod = \"10ms\"\ncompute = \"1ms\"\n"),
];

/// Results that earlier commands of a page's reader have left.
pub(crate) const RESULTS: &[(&str, &str)] =
    &[("host.json", "host_all.json"), ("path.json", "path_udp.json"), ("run.json", "cycle.json")];

/// What is put in another's place, because the test's machine is not the reader's.
pub(crate) const IN_PLACE: &[(&str, &str, &str)] =
    &[("/usr/bin/", "./", "programs of this machine stay as they are")];

const IDENTITY: &str =
    "--nts-cert /etc/ssl/time.example.pem --nts-key /etc/ssl/private/time.example.key";

/// What a command asks of the far host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Far {
    /// A server of time with everything, a PTP master of this domain.
    Server(u8),
    /// The same and its counters.
    Counters,
    /// The far end of a path.
    Path,
}

impl Far {
    pub(crate) fn command(self) -> String {
        let serve = |domain: u8| {
            format!(
                "horolog serve --local --listen 192.0.2.1:123 --keys ntp.keys --nts-ke-rate-per-prefix 0 \
                 --nts-ke-connections-per-prefix 0 --nts-cert /etc/ssl/time.example.pem \
                 --nts-key /etc/ssl/private/time.example.key --ptp eth0 --ptp-domain {domain} \
                 --ptp-unicast-allow 10.0.0.0/8"
            )
        };
        match self {
            Self::Server(domain) => serve(domain),
            Self::Counters => {
                format!("horolog counters --listen 192.0.2.1:9323 --token-file FILE & {}", serve(0))
            }
            Self::Path => "horolog path serve --stamp".to_owned(),
        }
    }

    /// What ends with status 0 when it answers.
    pub(crate) fn ready(self) -> String {
        let ports = match self {
            Self::Server(_) => "--udp 192.0.2.1:123 --tcp 192.0.2.1:4460",
            Self::Counters => "--udp 192.0.2.1:123 --tcp 192.0.2.1:9323",
            Self::Path => "--tcp 192.0.2.1:8625",
        };
        format!("horolog after {ports} --deadline 15s --quiet")
    }
}

/// What a command needs to be answered.
pub(crate) fn far(text: &str) -> Option<Far> {
    let begins = |words: &str| text.trim_start_matches("sudo ").starts_with(words);
    if text.contains("--counters ") {
        Some(Far::Counters)
    } else if begins("horolog path ") && !begins("horolog path serve") && !text.contains("--watch")
    {
        Some(Far::Path)
    } else if ["horolog load", "horolog query", "horolog ntpperf"].iter().any(|words| begins(words))
    {
        Some(Far::Server(if text.contains("--domain 24") { 24 } else { 0 }))
    } else {
        None
    }
}

/// Beginnings of commands that stay until they are told to end.
const STAYING: &[&str] = &[
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
    !ends && STAYING.iter().any(|words| text.starts_with(words))
}

/// Whether two that stay would be in each other's way.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    STAYING.iter().any(|words| one.starts_with(words) && other.starts_with(words))
}

/// Whether a command is one of the far host: what others ask.
pub(crate) fn is_far(text: &str) -> bool {
    let ours = ["horolog serve", "horolog path serve", "horolog counters --listen", "nats-server"];
    ours.iter().any(|words| text.starts_with(words)) || text.contains("--nodes 2 --listen")
}

/// How a command ends here that does not end with status 0.
pub(crate) struct Exception {
    /// How it begins, from its first word on.
    pub(crate) begins: &'static str,
    /// Its exit status.
    pub(crate) status: i32,
    /// A part of what it says.
    pub(crate) says: &'static str,
    pub(crate) because: &'static str,
}

/// All of them.
pub(crate) const EXCEPTIONS: &[Exception] = &[];
