//! Tests of the example configuration file, `packaging/horolog.toml`, which is generated from
//! clap's definition of the command, so that it contains exactly the valid keys. With
//! `HOROLOG_WRITE_EXAMPLE=1` they write it.

use std::fmt::Write;

use clap::{Arg, ArgAction};

use super::file;
use super::options::command_definition;

/// Path of the example, relative to the crate's directory, in which Cargo runs tests.
const PATH: &str = "../../packaging/horolog.toml";
const WIDTH: usize = 98;
const HEADER: &str = "\
# Options of `horolog serve --config FILE`. Each key is named as its flag, and a flag that is given on
# the command line wins. Everything is commented out and shows its default, or in capitals what it
# takes. `horolog serve --check --config FILE` checks a file; SIGHUP has the server read it again.
";

fn example_file() -> String {
    let mut text = HEADER.to_owned();
    for argument in file::file_keys(&command_definition()) {
        // Writing to memory does not fail.
        let _ = write!(text, "\n{}{}\n", help_comment(argument), key_line(argument));
    }
    text
}

fn help_comment(argument: &Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut words = help.map(ToString::to_string).unwrap_or_default();
    let possible = argument.get_possible_values();
    if !possible.is_empty() && !file::is_switch(argument) {
        let names: Vec<_> = possible.iter().map(clap::builder::PossibleValue::get_name).collect();
        let _ = write!(words, ". One of: {}.", names.join(", "));
    }
    let mut lines = String::new();
    let mut column = 0;
    for word in words.split_whitespace() {
        if column + word.len() > WIDTH || column == 0 {
            lines.push_str(if column == 0 { "#" } else { "\n#" });
            column = 1;
        }
        lines.push(' ');
        lines.push_str(word);
        column += word.len() + 1;
    }
    lines.push('\n');
    lines
}

fn key_line(argument: &Arg) -> String {
    let key = argument.get_long().unwrap_or_default();
    if file::is_switch(argument) {
        return format!("#{key} = false");
    }
    let default = argument.get_default_values().first().map(|value| value.to_string_lossy());
    let name = argument.get_value_names().and_then(|names| names.first());
    let value = match (default, name) {
        (Some(number), _) if number.parse::<i64>().is_ok() => number.into_owned(),
        (Some(text), _) => format!("{text:?}"),
        (None, name) => format!("{:?}", name.map_or("VALUE", |name| name.as_str())),
    };
    match argument.get_action() {
        ArgAction::Append => format!("#{key} = [{value}]"),
        _ => format!("#{key} = {value}"),
    }
}

#[test]
fn the_example_names_every_key_with_its_help_and_its_default() {
    if std::env::var_os("HOROLOG_WRITE_EXAMPLE").is_some() {
        std::fs::write(PATH, example_file()).unwrap();
    }
    let written = std::fs::read_to_string(PATH).unwrap();
    assert_eq!(
        written,
        example_file(),
        "write it anew with HOROLOG_WRITE_EXAMPLE=1 cargo test -p horolog-cli example"
    );
}

#[test]
fn the_example_can_be_read_and_its_defaults_hold() {
    let written = std::fs::read_to_string(PATH).unwrap();
    assert_eq!(file::parse_settings(&written, &command_definition()).unwrap(), []);
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let settings: Vec<&str> = written.lines().filter(is_setting).collect();
    assert_eq!(settings.len(), file::file_keys(&command_definition()).count());
    for line in settings {
        let line = &line[1..];
        // A key without default shows its value in capitals.
        if line.chars().any(|c| c.is_ascii_uppercase()) {
            continue;
        }
        file::parse_settings(line, &command_definition())
            .unwrap_or_else(|fault| panic!("{line}: {fault:?}"));
    }
}
