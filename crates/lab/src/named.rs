//! Labs with a name, for the command line: they outlive the process that created them, until
//! [`down`].
//!
//! Host `HOST` of lab `NAME` is the namespace `horolog-NAME-HOST`, which `ip netns` lists as well.
//! These names are the only state; `/run/netns` is read each time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use horolog_sys::namespace::{
    NamespaceError, NamespaceProcess, NetNs, delete_named, list_named, publish_all,
};

use crate::config::{HOSTS_MAX, host_name, host_number};
use crate::{Lab, LabConfig, LabError};

const PREFIX: &str = "horolog-";
/// Longest file name in bytes (`NAME_MAX`); the limit of a namespace's name.
const FILE_NAME_BYTES_MAX: usize = 255;

/// A lab as described by the names of its namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabSummary {
    /// The lab's name.
    pub name: String,
    /// Its hosts: the client, then the servers.
    pub hosts: Vec<String>,
}

impl LabSummary {
    /// Returns true if it has a client and a server; the remains of one after a crash may lack
    /// either.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        (0..2).all(|number| self.hosts.contains(&host_name(number)))
    }
}

/// Result of [`down`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedLab {
    /// The hosts whose names were removed.
    pub hosts: Vec<String>,
    /// The processes that still run in them and keep them alive without a name until they end.
    pub processes: Vec<NamespaceProcess>,
}

/// Creates a lab with a name. The names are published last and all at once, so that a failure or an
/// interruption (SIGINT, SIGTERM, SIGHUP) leaves nothing; see [`publish_all`] for the resulting
/// requirements on a program with several threads.
pub fn up(name: &str, config: &LabConfig) -> Result<Lab, LabError> {
    check_name(name)?;
    if !hosts_of(name)?.is_empty() {
        return Err(LabError::Exists(name.to_owned()));
    }
    let lab = Lab::new(config)?;
    let names: Vec<String> =
        lab.hosts().iter().map(|host| namespace_name(name, &host.name)).collect();
    let published: Vec<(&str, &NetNs)> =
        names.iter().map(String::as_str).zip(lab.hosts().iter().map(|host| &host.netns)).collect();
    publish_all(&published).map_err(|error| match error {
        // Another process was faster.
        NamespaceError::Exists(_) => LabError::Exists(name.to_owned()),
        other => other.into(),
    })?;
    Ok(lab)
}

/// Removes a lab, or its remains after a crash. Only the names are removed: processes inside
/// continue and keep their host alive until they end.
pub fn down(name: &str) -> Result<RemovedLab, LabError> {
    check_name(name)?;
    let hosts = hosts_of(name)?;
    if hosts.is_empty() {
        return Err(LabError::NotFound(name.to_owned()));
    }
    let mut processes = Vec::new();
    let mut failure = None;
    for host in &hosts {
        let namespace = namespace_name(name, host);
        match NetNs::open_named(&namespace) {
            Ok(netns) => processes.extend(netns.processes()?),
            // Partly created, or removed by another process: no process is inside.
            Err(NamespaceError::Stale(_) | NamespaceError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match delete_named(&namespace) {
            Ok(()) | Err(NamespaceError::NotFound(_)) => {}
            // The others can still be removed.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(RemovedLab { hosts, processes }),
    }
}

/// All labs, complete or not, by name.
pub fn list() -> Result<Vec<LabSummary>, LabError> {
    let mut labs: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for namespace in list_named()? {
        if let Some((lab, host)) = parse_namespace_name(&namespace) {
            labs.entry(lab.to_owned()).or_default().push(host);
        }
    }
    Ok(labs
        .into_iter()
        .map(|(name, mut numbers)| {
            numbers.sort_unstable();
            LabSummary { name, hosts: numbers.into_iter().map(host_name).collect() }
        })
        .collect())
}

/// A command that runs `program` in a host of a lab.
pub fn command(name: &str, host: &str, program: impl AsRef<OsStr>) -> Result<Command, LabError> {
    let netns = open_host(name, host)?;
    let mut command = Command::new(program);
    netns.start_inside(&mut command);
    Ok(command)
}

/// Replaces this process by the program `argv` in a host of a lab (`execve(2)`), so the program has
/// its terminal, its signals and its exit status with nothing in between. Returns only on failure.
pub fn exec(name: &str, host: &str, argv: &[OsString]) -> Result<Infallible, LabError> {
    let (program, arguments) = argv.split_first().ok_or(LabError::NoProgram)?;
    let source = command(name, host, program)?.args(arguments).exec();
    Err(LabError::Run { program: program.to_string_lossy().into_owned(), source })
}

fn open_host(name: &str, host: &str) -> Result<NetNs, LabError> {
    check_name(name)?;
    let hosts = hosts_of(name)?;
    if hosts.is_empty() {
        return Err(LabError::NotFound(name.to_owned()));
    }
    if !hosts.iter().any(|known| known == host) {
        return Err(LabError::NoSuchHost { lab: name.to_owned(), host: host.to_owned(), hosts });
    }
    let netns = NetNs::open_named(&namespace_name(name, host))?;
    // Entering fails here, with its own message, rather than as a failure to start the program.
    netns.run(|| ())?;
    Ok(netns)
}

/// The hosts of a lab that currently have a name.
fn hosts_of(name: &str) -> Result<Vec<String>, LabError> {
    Ok(list()?.into_iter().find(|lab| lab.name == name).map_or_else(Vec::new, |lab| lab.hosts))
}

fn check_name(name: &str) -> Result<(), LabError> {
    let usable = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !usable {
        return Err(LabError::BadName(name.to_owned()));
    }
    let longest_host = host_name(HOSTS_MAX - 1);
    let max = FILE_NAME_BYTES_MAX - namespace_name("", &longest_host).len();
    if name.len() > max {
        return Err(LabError::LongName { length: name.len(), max });
    }
    Ok(())
}

fn namespace_name(lab: &str, host: &str) -> String {
    format!("{PREFIX}{lab}-{host}")
}

/// The lab's name and the host's number; `None` for a namespace of other origin.
fn parse_namespace_name(namespace: &str) -> Option<(&str, usize)> {
    let (lab, host) = namespace.strip_prefix(PREFIX)?.rsplit_once('-')?;
    check_name(lab).ok()?;
    Some((lab, host_number(host)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_namespaces_are_read_back() {
        for lab in ["a", "a-client", "2", "x.y_z"] {
            for number in [0, 1, 2, 64] {
                let namespace = namespace_name(lab, &host_name(number));
                assert_eq!(parse_namespace_name(&namespace), Some((lab, number)), "{namespace}");
            }
        }
        for foreign in ["horolog", "horolog-client", "horolog--client", "horolog-a-router", "ns1"] {
            assert_eq!(parse_namespace_name(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        for name in ["", "-x", ".x", "a/b", "a b", "../x", "é", "a\n"] {
            assert!(matches!(check_name(name), Err(LabError::BadName(_))), "{name:?}");
        }
        let max = 255 - "horolog--server64".len();
        check_name(&"x".repeat(max)).unwrap();
        let too_long = check_name(&"x".repeat(max + 1));
        assert!(matches!(too_long, Err(LabError::LongName { max: m, .. }) if m == max));
    }

    #[test]
    fn half_a_lab_is_not_whole() {
        let lab = |hosts: &[&str]| LabSummary {
            name: "x".to_owned(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        };
        assert!(lab(&["client", "server"]).is_whole());
        assert!(!lab(&["client"]).is_whole());
        assert!(!lab(&["server", "server2"]).is_whole());
    }

    #[test]
    fn a_command_without_a_program_is_refused() {
        assert!(matches!(exec("x", "client", &[]), Err(LabError::NoProgram)));
    }
}
