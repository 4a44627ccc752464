//! Jobs that systemd keeps, as transient timers: what its programs are told, and what they say. The
//! timer is a little early, and its service waits for the instant itself: systemd's own timers join
//! wake-ups, and a process that is there already starts its program sooner.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::instant::{Instant, SECOND_NS, Scale};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// What names of units begin with.
const PREFIX: &str = "horolog-at-";
/// By how much the timer is early.
const LEAD_NS: i64 = 5 * SECOND_NS;
/// The sooner, the more exactly; systemd's default is a minute.
const ACCURACY: &str = "--timer-property=AccuracySec=1us";

/// Why systemd does not keep a job; one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum SystemdError {
    /// Its program is not there.
    #[error("cannot run {0}: {1}; use --by process, which needs no systemd")]
    Program(&'static str, io::Error),
    /// It says no.
    #[error("{0} says: {1}; use --by process, which needs no systemd")]
    Refused(&'static str, String),
    /// No such job.
    #[error("there is no job '{0}'; 'horolog at list' shows those that there are")]
    NoJob(String),
}

/// Whose jobs: the machine's for root, or the user's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Systemd {
    is_user: bool,
}

/// What systemd is handed.
#[derive(Clone, Debug)]
pub struct Transient<'a> {
    /// The first instant.
    pub first: Instant,
    /// The present by UTC, in ns since 1970.
    pub now_ns: i64,
    /// How far TAI is ahead of UTC, in ns.
    pub tai_ahead_ns: i64,
    /// What it is, for a list.
    pub description: &'a str,
    /// Where it runs.
    pub directory: &'a Path,
    /// What of the environment it gets.
    pub environment: &'a [(&'static str, OsString)],
    /// The program that waits, with its arguments.
    pub program: &'a [OsString],
}

/// A job that systemd keeps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its name without what all begin with.
    pub id: String,
    /// Its timer and its service, those of them that there are.
    pub units: Vec<String>,
    /// What it is.
    pub description: String,
}

impl Systemd {
    /// The one that keeps this user's jobs; `None` where it does not run (`sd_booted(3)`).
    #[must_use]
    pub fn running(is_root: bool, runtime_directory: Option<&Path>) -> Option<Self> {
        let system = Path::new("/run/systemd/system").is_dir();
        let user = || runtime_directory.is_some_and(|path| path.join("systemd/private").exists());
        (system && (is_root || user())).then_some(Self::of(is_root))
    }

    /// The one for this user, wherever it is.
    #[must_use]
    pub const fn of(is_root: bool) -> Self {
        Self { is_user: !is_root }
    }

    /// Hands over a job of this name.
    pub fn start(self, id: &str, job: &Transient<'_>) -> Result<(), SystemdError> {
        self.call("systemd-run", &arguments(id, job)).map(drop)
    }

    /// The jobs that it keeps.
    pub fn list(self) -> Result<Vec<Unit>, SystemdError> {
        let pattern = format!("{PREFIX}*");
        let arguments = ["list-units", "--all", "--plain", "--no-legend", "--no-pager", "--full"];
        let arguments = arguments.into_iter().chain([&*pattern]).map(OsString::from);
        let output = self.call("systemctl", &arguments.collect::<Vec<_>>())?;
        Ok(units(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Ends a job, waiting or running.
    pub fn cancel(self, id: &str) -> Result<Unit, SystemdError> {
        let unit = self.list()?.into_iter().find(|unit| unit.id == id);
        let unit = unit.ok_or_else(|| SystemdError::NoJob(id.to_owned()))?;
        let arguments = ["stop"].into_iter().map(OsString::from);
        let arguments = arguments.chain(unit.units.iter().map(OsString::from));
        self.call("systemctl", &arguments.collect::<Vec<_>>())?;
        Ok(unit)
    }

    fn call(self, name: &'static str, arguments: &[OsString]) -> Result<Output, SystemdError> {
        let mut command = Command::new(name);
        if self.is_user {
            command.arg("--user");
        }
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.map_err(|error| SystemdError::Program(name, error))?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().map(str::trim).find(|line| !line.is_empty());
        let said = said.map_or_else(|| output.status.to_string(), str::to_owned);
        Err(SystemdError::Refused(name, said))
    }
}

/// What systemd-run is told (systemd-run(1), systemd.time(7)).
fn arguments(id: &str, job: &Transient<'_>) -> Vec<OsString> {
    let utc_ns = match job.first.scale {
        Scale::Utc => job.first.ns,
        Scale::Tai => job.first.ns.saturating_sub(job.tai_ahead_ns),
    };
    let early_ns = utc_ns.saturating_sub(LEAD_NS);
    let when = if early_ns > job.now_ns.saturating_add(SECOND_NS) {
        format!("--on-calendar={}", calendar(early_ns))
    } else {
        "--on-active=0".to_owned()
    };
    let mut words: Vec<OsString> = ["--quiet", "--collect", ACCURACY].map(OsString::from).to_vec();
    words.extend([
        "--timer-property=RemainAfterElapse=no".into(),
        format!("--unit={PREFIX}{id}").into(),
        format!("--description={}", job.description).into(),
        when.into(),
    ]);
    words.push(joined("--working-directory=", job.directory.as_os_str()));
    for (name, value) in job.environment {
        words.push(joined(&format!("--setenv={name}="), value));
    }
    words.push("--".into());
    words.extend(job.program.iter().take(1).cloned());
    words.extend(job.program.iter().skip(1).map(|word| dollars_doubled(word)));
    words
}

/// A dollar begins a variable in the arguments of a service, and two are one (systemd.service(5)).
fn dollars_doubled(word: &OsStr) -> OsString {
    let bytes = word.as_bytes().iter();
    let bytes = bytes.flat_map(|&byte| std::iter::repeat_n(byte, if byte == b'$' { 2 } else { 1 }));
    OsString::from_vec(bytes.collect())
}

fn joined(name: &str, value: &OsStr) -> OsString {
    let mut word = OsString::from(name);
    word.push(value);
    word
}

/// An instant as systemd.time(7) has it, to the microsecond below.
fn calendar(ns: i64) -> String {
    let time = Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
    let time = time.to_zoned(TimeZone::UTC);
    format!("{}.{:06} UTC", time.strftime("%Y-%m-%d %H:%M:%S"), time.subsec_nanosecond() / 1_000)
}

/// Lines of `UNIT LOAD ACTIVE SUB DESCRIPTION`, a timer's and its service's joined.
fn units(text: &str) -> Vec<Unit> {
    let mut units: Vec<Unit> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let Some((id, kind)) = name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.'))
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
        units.push(Unit { id: id.to_owned(), units: vec![name.to_owned()], description });
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(first: Instant, now_ns: i64) -> Vec<String> {
        let program = ["horolog", "at", "$HOME"].map(OsString::from);
        let job = Transient {
            first,
            now_ns,
            tai_ahead_ns: 37 * SECOND_NS,
            description: "echo 50%",
            directory: Path::new("/tmp"),
            environment: &[("PATH", "/bin".into())],
            program: &program,
        };
        let words = arguments("7f", &job);
        words.into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_timer_is_early_and_its_service_waits_for_the_instant() {
        let first = Instant { scale: Scale::Utc, ns: 1_800_000_000_500_000_000 };
        let words = told(first, 1_700_000_000 * SECOND_NS);
        assert!(words.contains(&"--on-calendar=2027-01-15 07:59:55.500000 UTC".to_owned()));
        assert!(words.contains(&"--description=echo 50%".to_owned()), "{words:?}");
        assert!(words.contains(&"--unit=horolog-at-7f".to_owned()));
        assert_eq!(words[words.len() - 4..], ["--", "horolog", "at", "$$HOME"]);
        let tai = told(Instant { scale: Scale::Tai, ..first }, 1_700_000_000 * SECOND_NS);
        assert!(tai.contains(&"--on-calendar=2027-01-15 07:59:18.500000 UTC".to_owned()));
        let soon = told(first, first.ns - 2 * SECOND_NS);
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
        let units = units(text);
        assert_eq!(units.len(), 2);
        assert_eq!(units[0].units, ["horolog-at-7f.service", "horolog-at-7f.timer"]);
        assert_eq!(units[0].description, "2027-01-15T08:00:00Z: echo a b");
        assert_eq!(units[1].id, "80");
    }
}
