//! Jobs held by systemd as transient timers: the arguments for systemd-run and the parsing of
//! systemctl's output. The timer fires a little early, and its service waits for the instant
//! itself: systemd's own timers coalesce wake-ups, and a process that already runs starts its
//! program sooner.

use horolog_sys::explain::explain;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::instant::{InstantTimescale, SECOND_NS, TimescaleInstant};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Prefix of the names of this program's units.
const UNIT_PREFIX: &str = "horolog-at-";
/// Lead of the timer before the instant, in ns.
const TIMER_LEAD_NS: i64 = 5 * SECOND_NS;
/// Smallest coalescing window of the timer; systemd's default is a minute.
const ACCURACY_OPTION: &str = "--timer-property=AccuracySec=1us";

/// Reason why systemd does not keep a job; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// The tool cannot be run.
    #[error(
        "cannot run {0}: {why}; use --backend process, which works without systemd",
        why = explain(.1)
    )]
    CannotRun(&'static str, io::Error),
    /// The tool failed, for this reason.
    #[error("{0} failed: {1}; use --backend process, which works without systemd")]
    Refused(&'static str, String),
    /// The job does not exist.
    #[error("job '{0}' not found; 'horolog at list' lists the jobs")]
    NoJob(String),
}

/// System manager for root, or user manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Systemd {
    is_user: bool,
}

/// Job to start with systemd.
#[derive(Clone, Debug)]
pub struct TransientTimer<'a> {
    /// First instant of the job, shortly before which the timer fires.
    pub first: TimescaleInstant,
    /// Present UTC, in ns since 1970.
    pub now_ns: i64,
    /// TAI minus UTC, in ns.
    pub tai_minus_utc_ns: i64,
    /// Description, for a list.
    pub description: &'a str,
    /// Working directory.
    pub directory: &'a Path,
    /// Environment variables to pass on.
    pub environment: &'a [(&'static str, OsString)],
    /// Program that waits for the instant, with its arguments.
    pub program: &'a [OsString],
}

/// Job of `horolog at` that systemd holds as a timer unit, a service unit or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SystemdJob {
    /// Unit name without the common prefix and the type of unit.
    pub id: String,
    /// Units of the job: its timer, its service, or both.
    pub units: Vec<String>,
    /// Description of the first unit listed.
    pub description: String,
}

impl Systemd {
    /// Returns the manager for this user's jobs; `None` if it does not run (`sd_booted(3)`).
    #[must_use]
    pub fn find_running(is_root: bool, runtime_directory: Option<&Path>) -> Option<Self> {
        let system = Path::new("/run/systemd/system").is_dir();
        let user = || runtime_directory.is_some_and(|path| path.join("systemd/private").exists());
        (system && (is_root || user())).then_some(Self::unchecked(is_root))
    }

    /// Returns the manager for this user without a check that it runs.
    #[must_use]
    pub const fn unchecked(is_root: bool) -> Self {
        Self { is_user: !is_root }
    }

    /// Starts a job under this name.
    pub fn start(self, id: &str, job: &TransientTimer<'_>) -> Result<(), SystemdError> {
        self.run_tool("systemd-run", &systemd_run_arguments(id, job)).map(drop)
    }

    /// Lists the jobs of this manager.
    pub fn list(self) -> Result<Vec<SystemdJob>, SystemdError> {
        let pattern = format!("{UNIT_PREFIX}*");
        let arguments = ["list-units", "--all", "--plain", "--no-legend", "--no-pager", "--full"];
        let arguments = arguments.into_iter().chain([&*pattern]).map(OsString::from);
        let output = self.run_tool("systemctl", &arguments.collect::<Vec<_>>())?;
        Ok(parse_units(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Terminates a job, waiting or running.
    pub fn cancel(self, id: &str) -> Result<SystemdJob, SystemdError> {
        let unit = self.list()?.into_iter().find(|unit| unit.id == id);
        let unit = unit.ok_or_else(|| SystemdError::NoJob(id.to_owned()))?;
        let arguments = ["stop"].into_iter().map(OsString::from);
        let arguments = arguments.chain(unit.units.iter().map(OsString::from));
        self.run_tool("systemctl", &arguments.collect::<Vec<_>>())?;
        Ok(unit)
    }

    fn run_tool(self, name: &'static str, arguments: &[OsString]) -> Result<Output, SystemdError> {
        let mut command = Command::new(name);
        if self.is_user {
            command.arg("--user");
        }
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| SystemdError::CannotRun(name, error))?;
        if output.status.success() {
            return Ok(output);
        }
        let stderr = String::from_utf8_lossy(&output.stderr);
        let first_line = stderr.lines().map(str::trim).find(|line| !line.is_empty());
        let reason = first_line.map_or_else(|| output.status.to_string(), str::to_owned);
        Err(SystemdError::Refused(name, reason))
    }
}

/// Returns the arguments of systemd-run (systemd-run(1), systemd.time(7)).
fn systemd_run_arguments(id: &str, job: &TransientTimer<'_>) -> Vec<OsString> {
    let utc_ns = match job.first.scale {
        InstantTimescale::Utc => job.first.ns,
        InstantTimescale::Tai => job.first.ns.saturating_sub(job.tai_minus_utc_ns),
    };
    let early_ns = utc_ns.saturating_sub(TIMER_LEAD_NS);
    let when = if early_ns > job.now_ns.saturating_add(SECOND_NS) {
        format!("--on-calendar={}", calendar_time(early_ns))
    } else {
        "--on-active=0".to_owned()
    };
    let mut words: Vec<OsString> =
        ["--quiet", "--collect", ACCURACY_OPTION].map(OsString::from).to_vec();
    words.extend([
        "--timer-property=RemainAfterElapse=no".into(),
        format!("--unit={UNIT_PREFIX}{id}").into(),
        format!("--description={}", job.description).into(),
        when.into(),
    ]);
    words.push(option_argument("--working-directory=", job.directory.as_os_str()));
    for (name, value) in job.environment {
        words.push(option_argument(&format!("--setenv={name}="), value));
    }
    words.push("--".into());
    words.extend(job.program.iter().take(1).cloned());
    words.extend(job.program.iter().skip(1).map(|word| escape_dollars(word)));
    words
}

/// Doubles dollars, which begin a variable in the arguments of a service (systemd.service(5)).
fn escape_dollars(word: &OsStr) -> OsString {
    let bytes = word.as_bytes().iter();
    let bytes = bytes.flat_map(|&byte| std::iter::repeat_n(byte, if byte == b'$' { 2 } else { 1 }));
    OsString::from_vec(bytes.collect())
}

fn option_argument(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

/// Formats an instant as in systemd.time(7), rounded down to a microsecond.
fn calendar_time(ns: i64) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
    let time = time.to_zoned(TimeZone::UTC);
    format!("{}.{:06} UTC", time.strftime("%Y-%m-%d %H:%M:%S"), time.subsec_nanosecond() / 1_000)
}

/// Parses lines of `UNIT LOAD ACTIVE SUB DESCRIPTION`, and joins the units of one job.
fn parse_units(text: &str) -> Vec<SystemdJob> {
    let mut units: Vec<SystemdJob> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let Some((id, kind)) =
            name.strip_prefix(UNIT_PREFIX).and_then(|rest| rest.rsplit_once('.'))
        else {
            continue;
        };
        let description = words.skip(3).collect::<Vec<_>>().join(" ");
        if !matches!(kind, "timer" | "service") {
            continue;
        }
        if let Some(unit) = units.iter_mut().find(|unit| unit.id == id) {
            unit.units.push(name.to_owned());
            continue;
        }
        units.push(SystemdJob { id: id.to_owned(), units: vec![name.to_owned()], description });
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timer_arguments(first: TimescaleInstant, now_ns: i64) -> Vec<String> {
        let program = ["horolog", "at", "$HOME"].map(OsString::from);
        let job = TransientTimer {
            first,
            now_ns,
            tai_minus_utc_ns: 37 * SECOND_NS,
            description: "echo 50%",
            directory: Path::new("/tmp"),
            environment: &[("PATH", "/bin".into())],
            program: &program,
        };
        let words = systemd_run_arguments("7f", &job);
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_timer_is_early_and_its_service_waits_for_the_instant() {
        let first =
            TimescaleInstant { scale: InstantTimescale::Utc, ns: 1_800_000_000_500_000_000 };
        let words = timer_arguments(first, 1_700_000_000 * SECOND_NS);
        assert!(words.contains(&"--on-calendar=2027-01-15 07:59:55.500000 UTC".to_owned()));
        assert!(words.contains(&"--description=echo 50%".to_owned()), "{words:?}");
        assert!(words.contains(&"--unit=horolog-at-7f".to_owned()));
        assert_eq!(words[words.len() - 4..], ["--", "horolog", "at", "$$HOME"]);
        let tai = timer_arguments(
            TimescaleInstant { scale: InstantTimescale::Tai, ..first },
            1_700_000_000 * SECOND_NS,
        );
        assert!(tai.contains(&"--on-calendar=2027-01-15 07:59:18.500000 UTC".to_owned()));
        let soon = timer_arguments(first, first.ns - 2 * SECOND_NS);
        assert!(soon.contains(&"--on-active=0".to_owned()), "{soon:?}");
    }

    #[test]
    fn timers_and_services_are_read_as_jobs() {
        let text = "\
horolog-at-7f.service loaded inactive dead    2027-01-15T08:00:00Z: echo a  b
horolog-at-7f.timer   loaded active   waiting 2027-01-15T08:00:00Z: echo a  b
horolog-at-80.timer   loaded active   waiting x
horolog-at-81.mount   loaded active   mounted x
nonsense

horolog.service loaded active running Horolog
";
        let units = parse_units(text);
        assert_eq!(units.len(), 2);
        assert_eq!(units[0].units, ["horolog-at-7f.service", "horolog-at-7f.timer"]);
        assert_eq!(units[0].description, "2027-01-15T08:00:00Z: echo a b");
        assert_eq!(units[1].id, "80");
    }
}
