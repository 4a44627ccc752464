//! Conversion of a configuration file (TOML) to flags: each key becomes the flag of the same name,
//! and is checked against clap's definition of the command, so that options are defined only once.
//! Pure: no file is opened, and no option is interpreted.

use std::collections::HashSet;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

/// Long names of flags that a configuration file may not set.
pub(crate) const COMMAND_LINE_ONLY: [&str; 4] = ["config", "check", "help", "version"];

/// Setting of a configuration file: one key with its value, as flags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConfigFileSetting {
    /// Key of the setting, which is the long name of the flag.
    pub(crate) key: String,
    /// Line of the key, counted from 1.
    pub(crate) line: usize,
    /// Arguments `--key=value`, one for each element of a list; `--key` for a switch that is on,
    /// none for one that is off.
    pub(crate) flags: Vec<String>,
}

/// Error in a configuration file: line and reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ConfigFileError {
    /// Line of the error, counted from 1.
    pub(crate) line: usize,
    /// Reason without file name and line, on one line of text.
    pub(crate) reason: String,
}

/// Parses the text of a configuration file to settings, in the order of their lines. Each is
/// checked by itself against the definition `command`, but not conflicts and requirements between
/// them.
pub(crate) fn parse_settings(
    text: &str,
    command: &Command,
) -> Result<Vec<ConfigFileSetting>, ConfigFileError> {
    let line_of =
        |offset: usize| 1 + text.as_bytes().iter().take(offset).filter(|b| **b == b'\n').count();
    let table = DeTable::parse(text).map_err(|error| ConfigFileError {
        line: line_of(error.span().map_or(0, |span| span.start)),
        reason: error.message().replace('\n', ", "),
    })?;
    let mut settings = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let setting = parse_setting(key, value, command, line);
        settings.push(setting.map_err(|reason| ConfigFileError { line, reason })?);
    }
    settings.sort_by_key(|setting| setting.line);
    Ok(settings)
}

fn parse_setting(
    key: &Spanned<DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    command: &Command,
    line: usize,
) -> Result<ConfigFileSetting, String> {
    let key = key.get_ref().as_ref();
    let argument = file_keys(command)
        .find(|argument| argument.get_long() == Some(key))
        .ok_or_else(|| unknown_key_reason(key, command))?;
    let flags = setting_flags(key, value.get_ref(), argument)?;
    for flag in &flags {
        check_flag(flag, command)?;
    }
    Ok(ConfigFileSetting { key: key.to_owned(), line, flags })
}

/// Returns the flags that a configuration file may set.
pub(crate) fn file_keys(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_key = |argument: &&Arg| {
        argument.get_long().is_some_and(|long| !COMMAND_LINE_ONLY.contains(&long))
    };
    command.get_arguments().filter(is_key)
}

/// Returns true if a flag takes no value.
pub(crate) fn is_switch(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse)
}

fn unknown_key_reason(key: &str, command: &Command) -> String {
    if COMMAND_LINE_ONLY.contains(&key) {
        return format!("'{key}' is not allowed in a file; give --{key} on the command line");
    }
    let names = file_keys(command).filter_map(Arg::get_long);
    let nearest = names.map(|name| (edit_distance(key, name), name)).min();
    match nearest {
        Some((_, name)) => format!("unknown key '{key}'; did you mean '{name}'?"),
        None => format!("unknown key '{key}'"),
    }
}

fn setting_flags(key: &str, value: &DeValue<'_>, argument: &Arg) -> Result<Vec<String>, String> {
    let is_list = matches!(argument.get_action(), ArgAction::Append);
    let is_switch = is_switch(argument);
    let with_value = |text: String| format!("--{key}={text}");
    match value {
        DeValue::Boolean(true) if is_switch => Ok(vec![format!("--{key}")]),
        DeValue::Boolean(false) if is_switch => Ok(Vec::new()),
        _ if is_switch => Err(wrong_type_reason(key, value, "true or false")),
        DeValue::Array(elements) if is_list => {
            let texts = elements.iter().map(|element| scalar_text(element.get_ref()));
            let texts: Option<Vec<String>> = texts.collect();
            let texts =
                texts.ok_or_else(|| wrong_type_reason(key, value, "a list of texts or numbers"))?;
            Ok(texts.into_iter().map(with_value).collect())
        }
        value => {
            let wanted = if is_list { "a list of texts or numbers" } else { "a text or a number" };
            let text = scalar_text(value).ok_or_else(|| wrong_type_reason(key, value, wanted))?;
            Ok(vec![with_value(text)])
        }
    }
}

/// Returns a TOML string or number as the text of a command-line argument; `None` for other types
/// and for integers outside of 64 bits.
fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        _ => None,
    }
}

fn wrong_type_reason(key: &str, value: &DeValue<'_>, wanted: &str) -> String {
    let found = match value {
        DeValue::Boolean(_) => "true or false",
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    };
    // The type is right, but an element of a list or the size of a number is not.
    if found == wanted || wanted.contains(found) {
        return format!("'{key}' has an invalid value; it takes {wanted}");
    }
    format!("'{key}' takes {wanted}, not {found}")
}

/// Checks that the command accepts this flag alone. A flag that requires another one passes; the
/// complete command line is checked later.
fn check_flag(flag: &str, command: &Command) -> Result<(), String> {
    let parsed = command.clone().try_get_matches_from(["horolog", flag]);
    match parsed {
        Err(error) if error.kind() != ErrorKind::MissingRequiredArgument => {
            Err(single_line_message(&error))
        }
        _ => Ok(()),
    }
}

/// Returns the message of a clap error in one line, without usage and the reference to `--help`.
pub(crate) fn single_line_message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    // The message ends at the first empty line; usage and a reference to the help follow.
    let lines = text.lines().take_while(|line| !line.trim().is_empty()).map(str::trim);
    let message = lines.collect::<Vec<_>>().join(" ");
    message.trim_start_matches("error: ").to_owned()
}

/// Returns the Levenshtein distance of two names: the number of characters to insert, remove or
/// change. Only their first 64 characters are compared.
fn edit_distance(first: &str, second: &str) -> usize {
    const LONGEST: usize = 64;
    let second: Vec<char> = second.chars().take(LONGEST).collect();
    let mut row: Vec<usize> = (0..=second.len()).collect();
    for (index, a) in first.chars().take(LONGEST).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, b) in second.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[column + 1];
            row[column + 1] = change.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[second.len()]
}

/// Returns the flags of all settings whose keys are not in `excluded`.
pub(crate) fn flags_except(
    settings: &[ConfigFileSetting],
    excluded: &HashSet<String>,
) -> Vec<String> {
    let remaining = settings.iter().filter(|setting| !excluded.contains(&setting.key));
    remaining.flat_map(|setting| setting.flags.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use clap::value_parser;
    use proptest::prelude::*;

    use super::*;

    fn command() -> Command {
        Command::new("horolog").args([
            Arg::new("config").long("config"),
            Arg::new("listen")
                .long("listen")
                .action(ArgAction::Append)
                .value_parser(value_parser!(std::net::SocketAddr)),
            Arg::new("local").long("local").action(ArgAction::SetTrue),
            Arg::new("stratum").long("stratum").value_parser(value_parser!(u8)),
            Arg::new("drift").long("drift").value_parser(value_parser!(i64)),
        ])
    }

    fn flags_of(text: &str) -> Vec<String> {
        flags_except(&parse_settings(text, &command()).unwrap(), &HashSet::new())
    }

    fn fault(text: &str) -> (usize, String) {
        let ConfigFileError { line, reason } = parse_settings(text, &command()).unwrap_err();
        (line, reason)
    }

    #[test]
    fn keys_become_the_flags_of_the_same_name() {
        let text = "# a server\nstratum = 2\nlocal = true\n\
                    listen = ['127.0.0.1:123', '[::1]:123']\ndrift = -5\n";
        let expected = [
            "--stratum=2",
            "--local",
            "--listen=127.0.0.1:123",
            "--listen=[::1]:123",
            "--drift=-5",
        ];
        assert_eq!(flags_of(text), expected);
        assert_eq!(flags_of("local = false\nlisten = '127.0.0.1:1'"), ["--listen=127.0.0.1:1"]);
        assert_eq!(flags_of("stratum = 0x1_0\nlisten = []"), ["--stratum=16"]);
    }

    #[test]
    fn keys_set_elsewhere_are_omitted() {
        let settings = parse_settings("stratum = 2\nlocal = true", &command()).unwrap();
        let excluded = HashSet::from(["stratum".to_owned()]);
        assert_eq!(flags_except(&settings, &excluded), ["--local"]);
    }

    #[test]
    fn a_fault_names_line_key_and_what_to_do() {
        assert_eq!(
            fault("local = true\n\nstratun = 3"),
            (3, "unknown key 'stratun'; did you mean 'stratum'?".into())
        );
        assert_eq!(fault("[listen]\na = 1"), (1, list_not("a section")));
        assert_eq!(fault("listen = true"), (1, list_not("true or false")));
        assert_eq!(fault("\nlocal = 1"), (2, "'local' takes true or false, not a number".into()));
        assert_eq!(
            fault("stratum = [1]"),
            (1, "'stratum' takes a text or a number, not a list".into())
        );
        let (line, reason) = fault("local = true\nstratum = 'first'");
        assert!(
            line == 2 && reason.contains("'first'") && reason.contains("--stratum"),
            "{reason}"
        );
        let (line, reason) = fault("config = 'x'");
        assert!(line == 1 && reason.contains("not allowed in a file"), "{reason}");
        for (text, line) in [("stratum = 1\nstratum = 2", 2), ("\nlocal =", 2), ("= 3", 1)] {
            assert_eq!(fault(text).0, line, "{text}");
            assert!(!fault(text).1.contains('\n'), "{text}");
        }
    }

    fn list_not(found: &str) -> String {
        format!("'listen' takes a list of texts or numbers, not {found}")
    }

    #[test]
    fn distances() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("root-delay", "root_delay"), 1);
        assert_eq!(edit_distance("same", "same"), 0);
    }

    proptest! {
        #[test]
        fn no_text_upsets_it(text in "\\PC{0,60}") {
            let _ = parse_settings(&text, &command());
        }

        #[test]
        fn a_value_survives_the_way_through_a_file(stratum: u8, drift: i64, local: bool, ports: Vec<u16>) {
            let listen: Vec<_> = ports.iter().map(|port| format!("'127.0.0.1:{port}'")).collect();
            let text = format!(
                "stratum = {stratum}\ndrift = {drift}\nlocal = {local}\nlisten = [{}]",
                listen.join(", ")
            );
            let flags = flags_of(&text);
            let arguments = std::iter::once("horolog".to_owned()).chain(flags);
            let matches = command().try_get_matches_from(arguments).unwrap();
            prop_assert_eq!(matches.get_one::<u8>("stratum"), Some(&stratum));
            prop_assert_eq!(matches.get_one::<i64>("drift"), Some(&drift));
            prop_assert_eq!(matches.get_flag("local"), local);
            let read: Vec<u16> = matches
                .get_many::<std::net::SocketAddr>("listen")
                .map(|all| all.map(std::net::SocketAddr::port).collect())
                .unwrap_or_default();
            prop_assert_eq!(read, ports);
        }
    }
}
