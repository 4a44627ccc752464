//! Test that the command line accepts every command of this program in the documentation. Scenarios
//! run them; this test finds a renamed option within seconds.

use clap::Parser as _;

use crate::Cli;
use crate::commands::load::ntpperf;

#[allow(dead_code, reason = "the scenarios, to which the parser belongs, use more of it")]
#[path = "../../../tests/src/documented/page.rs"]
mod page;

/// Name of the program in the documentation.
const PROGRAM: &str = "horolog";

/// Programs that take the name of this program, or of its service, as an argument.
const NOT_WRAPPERS: [&str; 2] = ["install", "systemctl"];
/// Names that a reader replaces and that are no valid value, with a valid one.
const PLACEHOLDERS: [(&str, &str); 1] = [("--resume CAMPAIGN", "--resume campaign")];

/// Returns the command lines of this program in a line for a shell, as words.
fn command_lines(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_default();
    let is_separator = |word: &String| ["|", "||", "&&", ";", "&"].contains(&word.as_str());
    let lines = words.split(is_separator).filter_map(|words| {
        // Words before the program are an assignment, a keyword or another program such as sudo.
        let start = words.iter().position(|word| word == PROGRAM)?;
        if words[..start].iter().any(|word| NOT_WRAPPERS.contains(&word.as_str())) {
            return None;
        }
        let ours = &words[start..];
        let is_redirection = |word: &String| word.trim_start_matches('2').starts_with(['>', '<']);
        let end = ours.iter().position(is_redirection).unwrap_or(ours.len());
        Some(ours[..end].to_vec())
    });
    lines.collect()
}

#[test]
fn commands_are_found_in_a_line() {
    let line = "sudo A=1 horolog query 'a b' 2> x | grep y && horolog runs list   # horolog three";
    let expected = [vec!["horolog", "query", "a b"], vec!["horolog", "runs", "list"]];
    assert_eq!(command_lines(line), expected);
    for other in ["cargo run horologe", "sudo systemctl enable --now horolog"] {
        assert!(command_lines(other).is_empty(), "{other}");
    }
}

#[test]
fn every_documented_command_is_accepted() {
    let (mut wrong, mut parsed) = (Vec::new(), 0);
    for name in page::names().unwrap() {
        let page = page::Page::read(&name).unwrap();
        for command in page.commands() {
            let mut text = command.text.clone();
            for (placeholder, value) in PLACEHOLDERS {
                text = text.replace(placeholder, value);
            }
            for words in command_lines(&text) {
                parsed += 1;
                let arguments = ntpperf::arguments(words.into_iter().map(Into::into));
                match Cli::try_parse_from(arguments) {
                    Err(error) if error.use_stderr() => {
                        let error = error.to_string();
                        let first = error.lines().next().unwrap_or_default().to_owned();
                        wrong.push(format!("{name}:{}: {}: {first}", command.line, command.text));
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(parsed > 200, "only {parsed} commands were found");
}
