//! Options of one server, merged from the command line and from the file that it names, and read
//! again at every reload. Their meaning is defined elsewhere.

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
use super::file::{self, FileSetting, is_switch};
use super::log::LogFormat;
use crate::failure::{CommandFailure, parse_failure, unreadable};

/// Greatest length of a file of options.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The command line; it stays while the file may change.
#[derive(Clone, Debug)]
pub(crate) struct ServeCommandLine(Vec<OsString>);

/// Options from both sources.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    /// The configuration that they define.
    pub(crate) config: ServerConfig,
    /// Format of events.
    pub(crate) log: LogFormat,
    /// True if they are only checked and printed.
    pub(crate) check_only: bool,
    /// Each option that has a value, in its written form.
    pub(crate) values: BTreeMap<String, Vec<String>>,
    from: Option<Origin>,
}

/// The file, and the lines of its keys.
#[derive(Debug)]
struct Origin {
    path: PathBuf,
    lines: BTreeMap<String, usize>,
}

/// The definition against which both are checked.
pub(crate) fn definition() -> Command {
    ServeArgs::augment_args(Command::new("horolog"))
}

impl ServeCommandLine {
    /// The command line of this process.
    pub(crate) fn of_this_process() -> Self {
        // Only the program stands before the command's name.
        Self(std::env::args_os().skip(2).collect())
    }

    /// Reads the file that the command line names, if any, and merges both: options of the command
    /// line take precedence, a list as a whole.
    pub(crate) fn options(&self) -> Result<ServeOptions, CommandFailure> {
        let failed = |error| parse_failure(&error, file::in_one_line(&error));
        let cli_matches = parse(&self.0).map_err(failed)?;
        let Some(path) = cli_matches.get_one::<PathBuf>("config") else {
            return ServeOptions::new(&cli_matches, None);
        };
        let at =
            |line, reason| CommandFailure::usage(format!("{}:{line}: {reason}", path.display()));
        let settings = file::settings(&read(path)?, &definition())
            .map_err(|fault| at(fault.line, fault.reason))?;
        let on_command_line = of_command_line(&cli_matches);
        let flags = file::flags_except(&settings, &on_command_line);
        let all: Vec<OsString> =
            flags.into_iter().map(OsString::from).chain(self.0.iter().cloned()).collect();
        let from = Origin::new(path, &settings, &on_command_line);
        match parse(&all) {
            Ok(matches) => ServeOptions::new(&matches, Some(from)),
            Err(error) => Err(parse_failure(&error, from.locate(&file::in_one_line(&error)))),
        }
    }
}

impl ServeOptions {
    fn new(matches: &ArgMatches, from: Option<Origin>) -> Result<Self, CommandFailure> {
        let args = ServeArgs::from_arg_matches(matches)
            .map_err(|error| CommandFailure::usage(file::in_one_line(&error)))?;
        let (log, check_only) = (args.operation.log.into(), args.operation.check);
        let mut config = args.resolve().map_err(|failure| match (failure, &from) {
            (CommandFailure::Usage(reason), Some(from)) => {
                CommandFailure::Usage(from.locate(&reason))
            }
            (failure, _) => failure,
        })?;
        let definition = definition();
        let files = definition.get_arguments().flat_map(|argument| files(argument, matches));
        config.operation.files = files.collect();
        let values = file::keys(&definition).filter_map(|argument| values(argument, matches));
        Ok(Self { config, log, check_only, values: values.collect(), from })
    }

    /// An error about an option with the line of the file that sets it, if any.
    pub(crate) fn locate(&self, complaint: &str) -> String {
        self.from.as_ref().map_or_else(|| complaint.to_owned(), |from| from.locate(complaint))
    }

    /// A line on the IP version that the kernel lacks, unless addresses were named.
    pub(crate) fn missing_ip(&self) -> Option<String> {
        let is_default = !self.values.contains_key("listen") && !self.config.listen.is_empty();
        WildcardAddresses::supported_by_kernel(0).missing.filter(|_| is_default)
    }

    /// All options in the form of a file.
    pub(crate) fn to_file(&self) -> String {
        let definition = definition();
        let line = |argument: &Arg| {
            let key = argument.get_long()?;
            let values = self.values.get(key)?;
            Some(format!("{key} = {}\n", written(argument, values)))
        };
        file::keys(&definition).filter_map(line).collect()
    }

    /// The options whose values differ, by name.
    pub(crate) fn differences(&self, other: &BTreeMap<String, Vec<String>>) -> Vec<String> {
        let keys: std::collections::BTreeSet<_> = self.values.keys().chain(other.keys()).collect();
        let differs = |key: &&&String| self.values.get(**key) != other.get(**key);
        keys.iter().filter(differs).map(|key| (*key).clone()).collect()
    }
}

impl Origin {
    fn new(path: &Path, settings: &[FileSetting], overruled: &HashSet<String>) -> Self {
        let counts = |setting: &&FileSetting| !overruled.contains(&setting.key);
        let lines = settings.iter().filter(counts).map(|s| (s.key.clone(), s.line)).collect();
        Self { path: path.to_owned(), lines }
    }

    /// Errors name options as flags; the first one set by the file determines the line.
    fn locate(&self, complaint: &str) -> String {
        let mut words = complaint
            .split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
            .filter_map(|word| word.strip_prefix("--"));
        match words.find_map(|name| self.lines.get(name)) {
            Some(line) => format!("{}:{line}: {complaint}", self.path.display()),
            None => complaint.to_owned(),
        }
    }
}

fn parse(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let program = OsString::from("horolog");
    definition().try_get_matches_from(std::iter::once(&program).chain(arguments))
}

fn read(path: &Path) -> Result<String, CommandFailure> {
    let failed = |error| unreadable("", path, &error);
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        let reason = format!("{} is longer than {FILE_BYTES_MAX} bytes", path.display());
        return Err(CommandFailure::usage(reason));
    }
    Ok(text)
}

/// The long names of the flags on the command line.
fn of_command_line(matches: &ArgMatches) -> HashSet<String> {
    let definition = definition();
    let is_on_command_line = |argument: &&Arg| {
        matches.value_source(argument.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let specified = definition.get_arguments().filter(is_on_command_line);
    specified.filter_map(Arg::get_long).map(ToOwned::to_owned).collect()
}

fn values(argument: &Arg, matches: &ArgMatches) -> Option<(String, Vec<String>)> {
    let (key, id) = (argument.get_long()?, argument.get_id().as_str());
    let values = if is_switch(argument) {
        vec![matches.get_flag(id).to_string()]
    } else {
        matches.get_raw(id)?.map(|value| value.to_string_lossy().into_owned()).collect()
    };
    Some((key.to_owned(), values))
}

/// The values of options that take paths.
fn files(argument: &Arg, matches: &ArgMatches) -> Vec<PathBuf> {
    let id = argument.get_id().as_str();
    // Options of other types return an error, which is ignored here.
    let paths = matches.try_get_many::<PathBuf>(id).ok().flatten();
    paths.map(|paths| paths.cloned().collect()).unwrap_or_default()
}

fn written(argument: &Arg, values: &[String]) -> String {
    let written: Vec<String> = values.iter().map(|value| scalar(argument, value)).collect();
    match argument.get_action() {
        ArgAction::Append => format!("[{}]", written.join(", ")),
        _ => written.join(", "),
    }
}

/// Numbers and switches are bare, all other values in quotation marks.
fn scalar(argument: &Arg, value: &str) -> String {
    let is_number = value.parse::<i64>().is_ok_and(|number| number.to_string() == value);
    if is_switch(argument) || is_number {
        return value.to_owned();
    }
    // TOML strings are written as JSON strings, as far as values of options are concerned.
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
        ServeCommandLine(config.into_iter().chain(flags).collect()).options()
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
        let again = options(&first.to_file(), &[]).unwrap();
        assert_eq!(again.values, first.values);
        assert!(first.to_file().contains("listen = [\"127.0.0.1:1\"]\n"), "{}", first.to_file());
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
        let printed = options("local = true", &[]).unwrap().to_file();
        assert!(printed.contains("oscillator"), "{printed}");
        options(&printed, &[]).unwrap();
    }

    #[test]
    fn files_are_known_by_their_type() {
        let known = options("status-socket = '/run/x.sock'", &[]).unwrap().config.operation.files;
        assert!(known.contains(&PathBuf::from("/run/x.sock")) && known.len() == 2, "{known:?}");
    }
}
