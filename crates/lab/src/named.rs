//! Named labs, for the command line: they persist after the process that created them, until
//! [`remove_lab`].
//!
//! Host `HOST` of lab `NAME` is the network namespace `horolog-NAME-HOST`, which `ip netns` lists
//! as well. These names are the only state; `/run/netns` is read each time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::Command;

use horolog_sys::namespace::{
    NamespaceError, NetNs, ProcessInNamespace, delete_named, list_named, publish_all,
};

use crate::config::{HOSTS_MAX, host_name, host_number};
use crate::{Lab, LabConfig, LabError};

const NAMESPACE_PREFIX: &str = "horolog-";
/// Largest length of a file name, in bytes (`NAME_MAX`), which limits the name of a namespace.
const FILE_NAME_BYTES_MAX: usize = 255;

/// Named lab, as far as its namespaces describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabSummary {
    /// Name of the lab.
    pub name: String,
    /// Names of its hosts: the client, then the servers.
    pub hosts: Vec<String>,
}

impl LabSummary {
    /// Returns true if the lab has a client and a server. The remains of a lab after a crash may
    /// lack either.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        (0..2).all(|number| self.hosts.contains(&host_name(number)))
    }
}

/// Result of [`remove_lab`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedLab {
    /// Names of the removed hosts.
    pub hosts: Vec<String>,
    /// Processes that still run in the hosts and keep the unnamed namespaces alive until they end.
    pub processes: Vec<ProcessInNamespace>,
}

/// Creates a named lab. The names are published last and all at once, so that a failure or an
/// interruption (SIGINT, SIGTERM, SIGHUP) leaves nothing behind; see [`publish_all`] for what this
/// requires of a program with several threads.
pub fn create_lab(name: &str, config: &LabConfig) -> Result<Lab, LabError> {
    check_name(name)?;
    if !host_names(name)?.is_empty() {
        return Err(LabError::Exists(name.to_owned()));
    }
    let lab = Lab::new(config)?;
    let names: Vec<String> =
        lab.hosts().iter().map(|host| namespace_name(name, &host.name)).collect();
    let published: Vec<(&str, &NetNs)> =
        names.iter().map(String::as_str).zip(lab.hosts().iter().map(|host| &host.netns)).collect();
    publish_all(&published).map_err(|error| match error {
        // Another process created it meanwhile.
        NamespaceError::Exists(_) => LabError::Exists(name.to_owned()),
        other => other.into(),
    })?;
    Ok(lab)
}

/// Removes a named lab, or its remains after a crash. Only the names are removed: processes in a
/// host continue, and keep its namespace alive until they end.
pub fn remove_lab(name: &str) -> Result<RemovedLab, LabError> {
    check_name(name)?;
    let hosts = host_names(name)?;
    if hosts.is_empty() {
        return Err(LabError::NotFound(name.to_owned()));
    }
    let mut processes = Vec::new();
    let mut failure = None;
    for host in &hosts {
        let namespace = namespace_name(name, host);
        match NetNs::open_named(&namespace) {
            Ok(netns) => processes.extend(netns.processes()?),
            // Incomplete, or removed by another process meanwhile: no process is inside.
            Err(NamespaceError::Stale(_) | NamespaceError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match delete_named(&namespace) {
            Ok(()) | Err(NamespaceError::NotFound(_)) => {}
            // The remaining hosts are still removed.
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error.into()),
        None => Ok(RemovedLab { hosts, processes }),
    }
}

/// Returns all named labs, complete or not, sorted by name.
pub fn list_labs() -> Result<Vec<LabSummary>, LabError> {
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

/// Returns a command that runs `program` in a host of a lab.
pub fn host_command(
    name: &str,
    host: &str,
    program: impl AsRef<OsStr>,
) -> Result<Command, LabError> {
    let netns = open_host(name, host)?;
    let mut command = Command::new(program);
    netns.start_inside(&mut command);
    Ok(command)
}

/// Replaces this process by a program in a host of a lab (execve(2)), so that the program has this
/// process's terminal, signals and exit status. `argv` is the program and its arguments. Returns
/// only on failure.
pub fn exec_in_host(name: &str, host: &str, argv: &[OsString]) -> Result<Infallible, LabError> {
    let (program, arguments) = argv.split_first().ok_or(LabError::NoProgram)?;
    let source = host_command(name, host, program)?.args(arguments).exec();
    Err(LabError::StartFailed { program: program.to_string_lossy().into_owned(), source })
}

fn open_host(name: &str, host: &str) -> Result<NetNs, LabError> {
    check_name(name)?;
    let hosts = host_names(name)?;
    if hosts.is_empty() {
        return Err(LabError::NotFound(name.to_owned()));
    }
    if !hosts.iter().any(|known| known == host) {
        return Err(LabError::NoSuchHost { lab: name.to_owned(), host: host.to_owned(), hosts });
    }
    let netns = NetNs::open_named(&namespace_name(name, host))?;
    // Enters the namespace once, so that a failure is reported as such and not as one to start the
    // program.
    netns.run(|| ())?;
    Ok(netns)
}

/// Returns the names of the hosts of a lab; none if the lab does not exist.
fn host_names(name: &str) -> Result<Vec<String>, LabError> {
    Ok(list_labs()?.into_iter().find(|lab| lab.name == name).map_or_else(Vec::new, |lab| lab.hosts))
}

fn check_name(name: &str) -> Result<(), LabError> {
    let is_valid = name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !is_valid {
        return Err(LabError::InvalidName(name.to_owned()));
    }
    let longest_host = host_name(HOSTS_MAX - 1);
    let max = FILE_NAME_BYTES_MAX - namespace_name("", &longest_host).len();
    if name.len() > max {
        return Err(LabError::NameTooLong { length: name.len(), max });
    }
    Ok(())
}

fn namespace_name(lab: &str, host: &str) -> String {
    format!("{NAMESPACE_PREFIX}{lab}-{host}")
}

/// Parses the name of a namespace into the lab's name and the host's number; `None` if the
/// namespace is not part of a lab.
fn parse_namespace_name(namespace: &str) -> Option<(&str, usize)> {
    let (lab, host) = namespace.strip_prefix(NAMESPACE_PREFIX)?.rsplit_once('-')?;
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
            assert!(matches!(check_name(name), Err(LabError::InvalidName(_))), "{name:?}");
        }
        let max = 255 - "horolog--server64".len();
        check_name(&"x".repeat(max)).unwrap();
        let too_long = check_name(&"x".repeat(max + 1));
        assert!(matches!(too_long, Err(LabError::NameTooLong { max: m, .. }) if m == max));
    }

    #[test]
    fn half_a_lab_is_not_whole() {
        let lab = |hosts: &[&str]| LabSummary {
            name: "x".to_owned(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
        };
        assert!(lab(&["client", "server"]).is_complete());
        assert!(!lab(&["client"]).is_complete());
        assert!(!lab(&["server", "server2"]).is_complete());
    }

    #[test]
    fn a_command_without_a_program_is_refused() {
        assert!(matches!(exec_in_host("x", "client", &[]), Err(LabError::NoProgram)));
    }
}
