//! Options of `horolog serve`, merged from the command line and from the configuration file that it
//! names. Both are evaluated again at every reload.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use horolog_server::ServerConfig;
use horolog_sys::listen::WildcardAddresses;

use super::ServeArgs;
use super::file::{self, ConfigFileSetting, is_switch};
use super::log::LogFormat;
use crate::failure::{CommandFailure, parse_failure, read_failure};

/// Largest size of a configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `horolog serve`, stored because a reload parses them again with the changed
/// configuration file.
#[derive(Clone, Debug)]
pub(crate) struct ServeCommandLine(Vec<OsString>);

/// Options of a server, merged from command line and configuration file.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    /// Server configuration to which the options resolve.
    pub(crate) config: ServerConfig,
    /// Format of the event log.
    pub(crate) log: LogFormat,
    /// True if the options are only checked and printed (`--check`).
    pub(crate) check_only: bool,
    /// Values of each option that has any as text, by long name; defaults included.
    pub(crate) values: BTreeMap<String, Vec<String>>,
    file_lines: Option<ConfigKeyLines>,
}

/// Path of the configuration file, and the lines of the keys that are in force, for error messages.
#[derive(Debug)]
struct ConfigKeyLines {
    path: PathBuf,
    lines: BTreeMap<String, usize>,
}

/// Returns clap's definition of the options, for command line and configuration file.
pub(crate) fn command_definition() -> Command {
    ServeArgs::augment_args(Command::new("horolog"))
}

impl ServeCommandLine {
    /// Returns the arguments of this process after `horolog serve`.
    pub(crate) fn of_this_process() -> Self {
        // Skip the program and the name of the command: no flag can precede that.
        Self(std::env::args_os().skip(2).collect())
    }

    /// Reads the configuration file that the command line names, if any, and merges both. An option
    /// on the command line replaces that of the file; lists are not merged.
    pub(crate) fn load_options(&self) -> Result<ServeOptions, CommandFailure> {
        let failed = |error| parse_failure(&error, file::single_line_message(&error));
        let cli_matches = parse_arguments(&self.0).map_err(failed)?;
        let Some(path) = cli_matches.get_one::<PathBuf>("config") else {
            return ServeOptions::new(&cli_matches, None);
        };
        let located =
            |line, reason| CommandFailure::usage(format!("{}:{line}: {reason}", path.display()));
        let settings = file::parse_settings(&read_config_file(path)?, &command_definition())
            .map_err(|error| located(error.line, error.reason))?;
        let command_line_flags = flags_on_command_line(&cli_matches);
        let flags = file::flags_except(&settings, &command_line_flags);
        let arguments: Vec<OsString> =
            flags.into_iter().map(OsString::from).chain(self.0.iter().cloned()).collect();
        let file_lines = ConfigKeyLines::new(path, &settings, &command_line_flags);
        match parse_arguments(&arguments) {
            Ok(matches) => ServeOptions::new(&matches, Some(file_lines)),
            Err(error) => {
                Err(parse_failure(&error, file_lines.locate(&file::single_line_message(&error))))
            }
        }
    }
}

impl ServeOptions {
    fn new(matches: &ArgMatches, from: Option<ConfigKeyLines>) -> Result<Self, CommandFailure> {
        let args = ServeArgs::from_arg_matches(matches)
            .map_err(|error| CommandFailure::usage(file::single_line_message(&error)))?;
        let (log, check_only) = (args.operation.log.into(), args.operation.check);
        let mut config = args.resolve().map_err(|failure| match (failure, &from) {
            (CommandFailure::Usage(reason), Some(file_lines)) => {
                CommandFailure::Usage(file_lines.locate(&reason))
            }
            (failure, _) => failure,
        })?;
        let definition = command_definition();
        let files = definition.get_arguments().flat_map(|argument| option_paths(argument, matches));
        config.operation.files = files.collect();
        let values =
            file::file_keys(&definition).filter_map(|argument| option_values(argument, matches));
        Ok(Self { config, log, check_only, values: values.collect(), file_lines: from })
    }

    /// Prefixes an error with path and line of the configuration file, if that sets an option that
    /// the error names.
    pub(crate) fn locate(&self, error: &str) -> String {
        self.file_lines
            .as_ref()
            .map_or_else(|| error.to_owned(), |file_lines| file_lines.locate(error))
    }

    /// Returns a notice about an IP version that the kernel does not support; `None` if it supports
    /// both or if the default addresses are not used.
    pub(crate) fn missing_ip_notice(&self) -> Option<String> {
        let is_default = !self.values.contains_key("listen") && !self.config.listen.is_empty();
        WildcardAddresses::supported_by_kernel(0).missing.filter(|_| is_default)
    }

    /// Returns all options that have values as a configuration file.
    pub(crate) fn to_toml(&self) -> String {
        let definition = command_definition();
        let line = |argument: &Arg| {
            let key = argument.get_long()?;
            let values = self.values.get(key)?;
            Some(format!("{key} = {}\n", toml_values(argument, values)))
        };
        file::file_keys(&definition).filter_map(line).collect()
    }

    /// Returns the long names of the options whose values differ from those of `other`.
    pub(crate) fn differences(&self, other: &BTreeMap<String, Vec<String>>) -> Vec<String> {
        let keys: std::collections::BTreeSet<_> = self.values.keys().chain(other.keys()).collect();
        let differs = |key: &&&String| self.values.get(**key) != other.get(**key);
        keys.iter().filter(differs).map(|key| (*key).clone()).collect()
    }
}

impl ConfigKeyLines {
    fn new(path: &Path, settings: &[ConfigFileSetting], overridden: &HashSet<String>) -> Self {
        let is_in_force = |setting: &&ConfigFileSetting| !overridden.contains(&setting.key);
        let lines = settings.iter().filter(is_in_force).map(|s| (s.key.clone(), s.line)).collect();
        Self { path: path.to_owned(), lines }
    }

    /// Prefixes an error with path and line of the first flag (`--name`) in its text that the file
    /// has set; returns it unchanged if there is none.
    fn locate(&self, error: &str) -> String {
        let mut words = error
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter_map(|word| word.strip_prefix("--"));
        match words.find_map(|name| self.lines.get(name)) {
            Some(line) => format!("{}:{line}: {error}", self.path.display()),
            None => error.to_owned(),
        }
    }
}

fn parse_arguments(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let program = OsString::from("horolog");
    command_definition().try_get_matches_from(std::iter::once(&program).chain(arguments))
}

fn read_config_file(path: &Path) -> Result<String, CommandFailure> {
    let failed = |error| read_failure("", path, &error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(CONFIG_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > CONFIG_BYTES_MAX {
        let reason = format!("{} is longer than {CONFIG_BYTES_MAX} bytes", path.display());
        return Err(CommandFailure::usage(reason));
    }
    Ok(text)
}

/// Returns the long names of the flags that are on the command line, not those with default values.
fn flags_on_command_line(matches: &ArgMatches) -> HashSet<String> {
    let definition = command_definition();
    let is_on_command_line = |argument: &&Arg| {
        matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let specified = definition.get_arguments().filter(is_on_command_line);
    specified.filter_map(Arg::get_long).map(ToOwned::to_owned).collect()
}

fn option_values(argument: &Arg, matches: &ArgMatches) -> Option<(String, Vec<String>)> {
    let (key, id) = (argument.get_long()?, argument.get_id().as_str());
    let values = if is_switch(argument) {
        vec![matches.get_flag(id).to_string()]
    } else {
        matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect()
    };
    Some((key.to_owned(), values))
}

/// Returns the values of an option of type `PathBuf`; nothing for other types.
fn option_paths(argument: &Arg, matches: &ArgMatches) -> Vec<PathBuf> {
    let id = argument.get_id().as_str();
    // clap returns an error for options of another type.
    let paths = matches.try_get_many::<PathBuf>(id).ok().flatten();
    paths.map(|paths| paths.cloned().collect()).unwrap_or_default()
}

fn toml_values(argument: &Arg, values: &[String]) -> String {
    let scalars: Vec<String> = values.iter().map(|value| toml_scalar(argument, value)).collect();
    match argument.get_action() {
        ArgAction::Append => format!("[{}]", scalars.join(", ")),
        _ => scalars.join(", "),
    }
}

/// Formats a value of an option for TOML: integers and switches as such, all others as strings.
fn toml_scalar(argument: &Arg, value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_switch(argument) || is_number {
        return value.to_owned();
    }
    // For the values of options, a JSON string is a valid TOML basic string.
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn options(file: &str, flags: &[&str]) -> Result<ServeOptions, CommandFailure> {
        let mut written = tempfile::NamedTempFile::new().unwrap();
        written.write_all(file.as_bytes()).unwrap();
        let config = ["--config".into(), written.path().as_os_str().to_owned()];
        let flags = flags.iter().map(OsString::from);
        ServeCommandLine(config.into_iter().chain(flags).collect()).load_options()
    }

    fn value(options: &ServeOptions, key: &str) -> Vec<String> {
        options.values.get(key).cloned().unwrap_or_default()
    }

    #[test]
    fn the_command_line_wins_and_lists_are_not_mixed() {
        let file = "stratum = 3\nlisten = ['127.0.0.1:1', '127.0.0.1:2']\nlocal = true";
        let both = options(file, &["--listen", "127.0.0.1:3", "--stratum", "4"]).unwrap();
        assert_eq!(value(&both, "listen"), ["127.0.0.1:3"]);
        assert_eq!(value(&both, "stratum"), ["4"]);
        assert_eq!(value(&both, "local"), ["true"]);
        let alone = options(file, &[]).unwrap();
        assert_eq!(value(&alone, "listen"), ["127.0.0.1:1", "127.0.0.1:2"]);
        assert_eq!(alone.differences(&both.values), ["listen", "stratum"]);
    }

    #[test]
    fn what_is_printed_can_be_read_again() {
        let file = "stratum = 3\nlisten = ['127.0.0.1:1']\nrefid = 'GPS'\ntest-offset = -5\n\
                    root-delay = '1ms'\nlocal = false\nstatus-socket = '/tmp/a \"b\".sock'";
        let first = options(file, &[]).unwrap();
        let again = options(&first.to_toml(), &[]).unwrap();
        assert_eq!(again.values, first.values);
        assert!(first.to_toml().contains("listen = [\"127.0.0.1:1\"]\n"), "{}", first.to_toml());
    }

    #[test]
    fn a_complaint_names_the_line() {
        let file = "\nstratum = 0\n";
        let complaint = "stratum 0 cannot be claimed; --stratum takes 1 to 15";
        let located = options(file, &[]).unwrap().locate(complaint);
        assert!(located.ends_with(&format!(":2: {complaint}")), "{located}");
        let overruled = options(file, &["--stratum", "0"]).unwrap();
        assert_eq!(overruled.locate(complaint), complaint);
        let Err(CommandFailure::Usage(reason)) = options("a = 1", &[]) else {
            panic!("no refusal")
        };
        assert!(reason.contains(":1: unknown key 'a'"), "{reason}");
    }

    #[test]
    fn receiver_options_require_a_receiver_even_with_local() {
        let refused = |file: &str, flags: &[&str]| match options(file, flags) {
            Err(CommandFailure::Usage(reason)) => reason,
            other => panic!("{file} {flags:?}: {other:?}"),
        };
        for setting in ["pps = '/dev/pps0'", "oscillator = 'ocxo'", "shm-output = [2]"] {
            let reason = refused(&format!("local = true\n{setting}\n"), &[]);
            let key = setting.split(' ').next().unwrap();
            assert!(reason.contains(&format!(":2: --{key} ")), "{reason}");
            assert!(reason.contains("give --gnss as well"), "{reason}");
        }
        for flags in [["--sock-output", "/x"], ["--clock-error-log", "/x"]] {
            let reason = refused("", &["--local", flags[0], flags[1]]);
            assert!(reason.starts_with(flags[0]), "{reason}");
        }
        let printed = options("local = true", &[]).unwrap().to_toml();
        assert!(printed.contains("oscillator"), "{printed}");
        options(&printed, &[]).unwrap();
    }

    #[test]
    fn files_are_known_by_their_type() {
        let known = options("status-socket = '/run/x.sock'", &[]).unwrap().config.operation.files;
        assert!(known.contains(&PathBuf::from("/run/x.sock")) && known.len() == 2, "{known:?}");
    }
}
