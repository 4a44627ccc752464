//! Substitutes for what pages assume of the reader's hosts, and the commands that do not succeed in
//! a lab, with the reason. All other commands have to end with status 0, by themselves or after an
//! interrupt.

/// Pages for readers who are not administrators: commands without `sudo` run as another user, in
/// directories closed to others.
pub(crate) const UNPRIVILEGED_PAGES: &[&str] = &["docs/tutorial.md"];

/// Pages of which every command is run. Of the others, measurements are run only if they are the
/// first of their [`kind`] on any page.
pub(crate) const WHOLE_PAGES: &[&str] = &["README.md", "docs/tutorial.md"];

/// Pages of which measurements are run.
pub(crate) const MEASURING_PAGES: &[&str] = &[
    "README.md",
    "docs/bench.md",
    "docs/campaign-nats.md",
    "docs/campaign.md",
    "docs/capacity.md",
    "docs/cycle-predict.md",
    "docs/cycle-test.md",
    "docs/cycle.md",
    "docs/demo.md",
    "docs/host-scheduler.md",
    "docs/host.md",
    "docs/live.md",
    "docs/loading.md",
    "docs/measuring.md",
    "docs/ntpperf.md",
    "docs/path-tcp.md",
    "docs/path.md",
    "docs/relay.md",
    "docs/reproduce.md",
    "docs/tutorial.md",
];

/// Host names that resolve to the far host.
pub(crate) const FAR_HOST_NAMES: &[&str] = &[
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

/// Shell script of the reader's host: its interface is named eth0, and eth1 leads nowhere.
pub(crate) const NEAR_NETWORK: &str = "
    ip link set veth0 down; ip link set veth0 name eth0; ip link set eth0 up
    ip link add eth1 type veth peer name eth1-end; ip link set eth1 up; ip link set eth1-end up
    ip address add 198.51.100.2/24 dev eth1
    ip route add default via 192.0.2.1 dev eth0";

/// Shell script of the far host, which runs the servers that pages use.
pub(crate) const FAR_NETWORK: &str = "
    ip link add eth1 type veth peer name eth1-end; ip link set eth1 up; ip link set eth1-end up
    ip link set veth0 down; ip link set veth0 name eth0; ip link set eth0 up
    ip address add 198.51.100.1/24 dev eth1
    for net in 10.0.0.0/8 172.16.0.0/12; do ip route add $net via 192.0.2.2 dev eth0; done";

/// Substitutes for the reader's programs, and for programs that a lab host lacks.
pub(crate) const PROGRAMS: &[(&str, &str)] = &[
    ("sudo", "[ \"$1\" = -E ] && shift; exec \"$@\""),
    // Checks that the target exists, without making it.
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

/// Symmetric key, which the far host has as well.
pub(crate) const KEYS: &str = "7 AES128 HEX:0123456789abcdef0123456789abcdef\n";

/// Files that pages name, readable only by their owner.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("FILE", "a-token-of-more-than-16-bytes\n"),
    ("token", "a-token-of-more-than-16-bytes\n"),
    ("ntp.keys", KEYS),
    ("profile.toml", "[[phase]]\nname = \"day\"\nrate = 1000\nduration = \"1s\"\n"),
];

/// Files whose content is a block of a page: file name, page, and beginning of the block.
pub(crate) const FILES_FROM_PAGES: &[(&str, &str, &str)] = &[
    ("table.toml", "docs/relay.md", "# Where copies may go."),
    ("tree.toml", "docs/relay.md", "nodes = ["),
    ("delays.csv", "docs/relay.md", "from,to,delay_us"),
    ("tasks.toml", "docs/cycle.md", "[[task]]"),
    ("test.toml", "docs/cycle-test.md", "schema = \"horolog.test/2\""),
    ("my-plan.toml", "docs/campaign.md", "schema = \"horolog.plan/2\""),
    ("plan.toml", "docs/campaign.md", "schema = \"horolog.plan/2\""),
];

/// Results of earlier commands of the reader: file name, and sample.
pub(crate) const RESULTS: &[(&str, &str)] = &[
    ("host.json", "host_all.json"),
    ("path.json", "path_udp.json"),
    ("run.json", "cycle.json"),
    ("before.json", "load.json"),
    ("after.json", "load.json"),
];

/// Replacements in commands where the lab differs from the reader's host: text, replacement and
/// reason.
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

/// Service on the far host that a command requires.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FarService {
    /// NTP server with NTS.
    Server,
    /// NTP server with a PTP master in this domain.
    Master(u8),
    /// NTP server with `horolog counters`.
    Counters,
    /// Far end of path measurements.
    Path,
}

impl FarService {
    pub(crate) fn command(self) -> String {
        // Horolog's default limits would affect loads; other scenarios cover them.
        let serve = "horolog serve --local --listen 192.0.2.1:123 --keys /etc/horolog/ntp.keys \
                     --nts-ke-rate-per-prefix 0 --nts-ke-connections-per-prefix 0 \
                     --nts-cert /etc/ssl/time.example.pem \
                     --nts-key /etc/ssl/private/time.example.key";
        match self {
            Self::Server => serve.to_owned(),
            // Shorter start: a port becomes master only after three Announce intervals.
            Self::Master(domain) => format!(
                "{serve} --ptp eth0 --ptp-domain {domain} --ptp-announce-interval=-3 \
                 --ptp-netsync-monitor --ptp-unicast-allow 10.0.0.0/8 \
                 --ptp-unicast-allow 172.16.0.0/12"
            ),
            // If the page has started counters itself, these fail to bind, without effect.
            Self::Counters => {
                format!("horolog counters --listen 192.0.2.1:9323 --token-file FILE & {serve}")
            }
            Self::Path => "horolog path serve --stamp".to_owned(),
        }
    }

    /// Beginning of a page's own command for this service, beside which the service is not started.
    pub(crate) fn page_command(self) -> &'static str {
        match self {
            Self::Path => "horolog path serve",
            _ => "horolog serve",
        }
    }

    /// Returns the command that ends with status 0 when the service answers.
    pub(crate) fn probe_command(self) -> String {
        let conditions = match self {
            Self::Server => "--udp 192.0.2.1:123 --tcp 192.0.2.1:4460",
            Self::Master(_) => "--udp 192.0.2.1:123 --succeeds 'horolog status | grep -q master'",
            Self::Counters => "--udp 192.0.2.1:123 --tcp 192.0.2.1:9323",
            Self::Path => "--tcp 192.0.2.1:8625",
        };
        format!("horolog after {conditions} --deadline 15s --retry-interval 20ms --quiet")
    }
}

/// Returns the service that a command requires; `None` if it requires none.
pub(crate) fn required_service(text: &str) -> Option<FarService> {
    let text = strip_sudo(text);
    let is_one_of = |all: &[&str]| all.iter().any(|words| text.starts_with(words));
    if text.contains("--counters ") {
        Some(FarService::Counters)
    } else if is_one_of(&["horolog path udp", "horolog path tcp", "horolog path stall"]) {
        Some(FarService::Path)
    } else if is_one_of(&["horolog load ptp", "horolog load mix"]) || is_ntpperf_ptp(text) {
        Some(FarService::Master(if text.contains("--domain 24") { 24 } else { 0 }))
    } else if is_one_of(NEEDS_TIME_SERVER) {
        Some(FarService::Server)
    } else {
        None
    }
}

/// Beginnings of commands that require an NTP server.
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

/// Returns true if a command is one of Horolog's.
pub(crate) fn is_horolog(text: &str) -> bool {
    ["horolog ", "ntpperf "].iter().any(|name| strip_sudo(text).starts_with(name))
}

/// Returns the subcommand of a measurement, which needs to run once; `None` for a command
/// on whose effect later ones may depend.
pub(crate) fn kind(text: &str) -> Option<String> {
    // By a later command that reads its result, or by another node.
    let is_needed = is_long_running(text)
        || [" --json ", " --join "].iter().any(|option| text.contains(option))
        || EXCEPTIONS.iter().any(|one| text.starts_with(one.prefix));
    let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    (is_measurement(text) && !is_needed).then(|| {
        let words = strip_sudo(text).split_whitespace().take(3);
        words.take_while(|word| is_word(word) && !word.starts_with('-')).collect()
    })
}

/// Returns true if a command measures for seconds, which may load a core in the kernel or at
/// real-time priority, so that others wait.
pub(crate) fn is_measurement(text: &str) -> bool {
    let begins = MEASUREMENTS.iter().any(|words| strip_sudo(text).starts_with(words));
    begins && !is_long_running(text) && !text.contains("--help")
}

const MEASUREMENTS: &[&str] = &[
    "horolog bench",
    "horolog campaign run",
    "horolog cycle",
    "horolog demo",
    "horolog host",
    "horolog load",
    "horolog ntpperf",
    "horolog path",
    "horolog query",
    "horolog relay tree",
    "ntpperf",
];

/// Beginnings of commands that wait for a time or an event, besides measurements.
const WAITING: &[&str] =
    &["horolog after", "horolog at", "horolog clock", "horolog counters", "horolog lab exec"];

/// Returns true if a command measures or waits, and is interrupted if that takes long.
pub(crate) fn may_wait(text: &str) -> bool {
    let begins = |words: &&str| strip_sudo(text).starts_with(words);
    MEASUREMENTS.iter().chain(WAITING).any(begins)
}

/// Returns a command without `sudo`, as users are root on the testbed.
fn strip_sudo(text: &str) -> &str {
    text.strip_prefix("sudo ").unwrap_or(text)
}

/// Beginnings of commands that run until they are interrupted.
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

/// Returns true if a command runs until it is interrupted; checks and help do not.
pub(crate) fn is_long_running(text: &str) -> bool {
    let ends = ["--check", "--show-policy", "--help"].iter().any(|flag| text.contains(flag));
    !ends && LONG_RUNNING.iter().any(|words| strip_sudo(text).starts_with(words))
}

/// Returns true if a command needs a terminal, on which a key ends it.
pub(crate) fn is_viewed(text: &str) -> bool {
    let command = text.split(" #").next().unwrap_or_default();
    command.split_whitespace().any(|word| word == "--live")
}

/// Returns the command that succeeds when a long-running command is ready; `None` if there is none.
pub(crate) fn readiness_command(text: &str) -> Option<&'static str> {
    if strip_sudo(text).starts_with("horolog relay run") {
        Some("horolog relay list")
    } else if strip_sudo(text).starts_with("horolog serve") {
        Some("horolog status")
    } else {
        None
    }
}

/// Returns true if two long-running commands conflict with each other.
pub(crate) fn is_conflicting(one: &str, other: &str) -> bool {
    LONG_RUNNING
        .iter()
        .any(|words| strip_sudo(one).starts_with(words) && strip_sudo(other).starts_with(words))
}

/// Returns true if a command belongs on the far host.
pub(crate) fn is_for_far_host(text: &str) -> bool {
    let ours = ["horolog serve", "horolog path serve", "horolog counters --listen", "nats-server"];
    let text = strip_sudo(text);
    let near = text.contains("--listen 192.0.2.2 ");
    !near && ours.iter().any(|words| text.starts_with(words)) || text.contains("--nodes 2 --listen")
}

/// Command that does not end with status 0 in a lab.
pub(crate) struct Exception {
    /// Beginning of the command, from its first word.
    pub(crate) prefix: &'static str,
    /// Exit status of the command.
    pub(crate) status: i32,
    /// Part of the command's output.
    pub(crate) message: &'static str,
    pub(crate) reason: &'static str,
}

/// Commands that do not end with status 0 in a lab, with the reason.
pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        prefix: "horolog serve --gnss /dev/ttyS0",
        status: 3,
        message: "/dev/pps0",
        reason: "no receiver is at hand",
    },
    Exception {
        prefix: "horolog serve --ptp eth1 --timestamps eth1=hardware",
        status: 3,
        message: "no hardware timestamps",
        reason: "a virtual link has no NIC",
    },
    Exception {
        prefix: "horolog clock compare /dev/ptp0",
        status: 3,
        message: "/dev/ptp0",
        reason: "a virtual machine has no PTP clock",
    },
    Exception {
        prefix: "horolog cycle run --period 10ms --program -- ./control",
        status: 3,
        message: "its first mark must be 'ready'",
        reason: "the lab lacks the reader's program, which implements the protocol",
    },
    Exception {
        prefix: "horolog at '21:00 TAI'",
        status: 3,
        message: "--tai-offset 37",
        reason: "the TAI offset of this kernel is not set",
    },
    Exception {
        prefix: "horolog at cancel 7",
        status: 2,
        message: "job 7 not found",
        reason: "fewer than seven jobs were started before",
    },
    Exception {
        prefix: "horolog campaign run --resume CAMPAIGN",
        status: 2,
        message: "invalid campaign name",
        reason: "CAMPAIGN is a placeholder for the name of an interrupted one",
    },
    Exception {
        prefix: "horolog serve --ptp eth1 --gnss /dev/ttyS0",
        status: 3,
        message: "/dev/pps0",
        reason: "no receiver is at hand",
    },
];
