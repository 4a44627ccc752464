//! List of flags and positional arguments by command, with their possible values if these have
//! names. Hidden ones are omitted.

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

pub(super) fn flag_lines() -> Vec<String> {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command_lines(&command, "")
}

fn command_lines(command: &Command, path: &str) -> Vec<String> {
    let path = format!("{path}{} ", command.get_name());
    let is_public = |argument: &&Arg| {
        !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let own_lines =
        command.get_arguments().filter(is_public).map(|argument| argument_line(argument, &path));
    let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
    let mut lines: Vec<String> = own_lines.collect();
    lines.sort();
    if lines.is_empty() {
        lines.push(path.trim_end().to_owned());
    }
    lines.extend(inner.flat_map(|inner| command_lines(inner, &path)));
    lines
}

fn argument_line(argument: &Arg, path: &str) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" ");
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let name = match (long, short) {
        (Some(long), Some(short)) => format!("{long}, {short}"),
        (long, short) => long.or(short).unwrap_or(value),
    };
    let possible = argument.get_possible_values();
    let is_switch = !argument.get_action().takes_values();
    let values: Vec<_> = possible.iter().map(clap::builder::PossibleValue::get_name).collect();
    if values.is_empty() || is_switch {
        format!("{path}{name}")
    } else {
        format!("{path}{name} = {}", values.join(" | "))
    }
}

#[test]
fn flags_have_both_names_and_their_values() {
    let list = flag_lines();
    let has = |line: &str| list.iter().any(|other| other == line);
    assert!(has("horolog load ntp --rate, -r"), "{list:#?}");
    assert!(has("horolog runs export --format = csv | parquet | jsonl"), "{list:#?}");
    assert!(list.iter().any(|line| line.starts_with("horolog load ntp <")), "{list:#?}");
}
