//! Scenarios of the documentation: every command on every page is run, in private hosts, and does
//! what it is shown to do: it ends well, or goes on until it is interrupted and then ends well.
//! What cannot succeed on a test's machine is in a table, with what it says instead and why; a
//! command in neither class fails. Nothing is measured.

use std::collections::BTreeMap;
use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::scenario;
use crate::{ROOT, documented, scenarios};

mod fixtures;
mod page;
mod table;
mod testbed;

use page::{Block, Documented, Page};
use table::{EXCEPTIONS, Exception};
use testbed::Testbed;

/// All of them: one for each page.
pub(crate) fn all() -> Vec<Trial> {
    let mut all = Vec::from(scenarios!(&[], documented:
        blocks_are_classified,
        no_exception_is_stale,
        names_in_the_text_exist,
    ));
    let names = match page::names() {
        Ok(names) => names,
        Err(error) => {
            all.push(scenario("documented::pages", &[], move || -> Result<()> { Err(error) }));
            return all;
        }
    };
    for name in names {
        let short = name.trim_start_matches("docs/").trim_end_matches(".md").to_lowercase();
        let short = if name == "docs/README.md" { "guides" } else { &short };
        all.push(scenario(format!("documented::{short}"), ROOT, move || commands_work(&name)));
    }
    all
}

fn blocks_are_classified() -> Result<()> {
    page::blocks_are_classified()
}

/// Runs everything that a page has its reader type, and tells all that went wrong.
fn commands_work(name: &str) -> Result<()> {
    let page = Page::read(name)?;
    if page.commands().next().is_none() {
        return Ok(());
    }
    let mut stage = Testbed::new(table::OF_A_USER.contains(&name))?;
    let mut wrong = Vec::new();
    for block in &page.blocks {
        let Block::Commands(commands) = block else { continue };
        for command in commands {
            if let Err(error) = works(&mut stage, command) {
                wrong.push(format!("{name}:{}: {error:#}", command.line));
            }
        }
        if let Err(error) = stage.end_block() {
            wrong.push(format!("{name}, the block of line {}: {error:#}", commands[0].line));
        }
    }
    if let Err(error) = stage.end_page() {
        wrong.push(format!("{name}: {error:#}"));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn works(stage: &mut Testbed, command: &Documented) -> Result<()> {
    let mut text = command.text.clone();
    for (from, to, _) in table::REPLACEMENTS {
        text = text.replace(from, to);
    }
    let (code, output_text) = if table::stays(&text) {
        let fails = exception(&command.text).is_some();
        let Some((status, output_text)) = stage.start(&text, fails)? else {
            return expected(&command.text, Some(0), "");
        };
        (status.code().filter(|&code| code != 0), output_text)
    } else if table::is_viewed(&text) {
        let (status, output_text) = stage.view(&text)?;
        (Some(status), output_text)
    } else {
        let output = stage.run(&text)?;
        let both = [output.stderr, output.stdout].concat();
        (output.status.code(), String::from_utf8_lossy(&both).into_owned())
    };
    expected(&command.text, code, &output_text)
}

fn exception(text: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|one| text.starts_with(one.begins))
}

/// Whether a command has ended as it should.
fn expected(text: &str, code: Option<i32>, output_text: &str) -> Result<()> {
    let exception = exception(text);
    let judged = [
        "--fail-if",
        "--load-min",
        "runs compare",
        "bench cores",
        "campaign run",
        "cycle predict",
        "host all",
    ]
    .iter()
    .any(|words| text.contains(words));
    // Interrupted before there was anything to tell, it says that it was.
    let waits = text.starts_with("horolog at ");
    let cut = ["ending early", "Ended by a signal"].iter().any(|words| output_text.contains(words))
        && !output_text.contains("cannot write");
    let right = match exception {
        Some(exception) => {
            code == Some(exception.status) && output_text.contains(exception.message)
        }
        None => match code {
            Some(0) => true,
            Some(1) => judged,
            Some(130) => cut || waits,
            Some(3) => cut,
            _ => false,
        },
    };
    if right {
        return Ok(());
    }
    let last: Vec<&str> = output_text.lines().rev().take(4).collect();
    let wanted = exception.map_or("0".to_owned(), |one| {
        format!("{} and '{}', because {}", one.status, one.message, one.because)
    });
    bail!("'{text}' ended with {code:?} instead of {wanted}: {}", last.join(" | "))
}

/// Each exception is one of a command that is there.
fn no_exception_is_stale() -> Result<()> {
    let mut all = Vec::new();
    for name in page::names()? {
        let page = Page::read(&name).with_context(|| name)?;
        all.extend(page.commands().map(|command| command.text.clone()));
    }
    for exception in EXCEPTIONS {
        let known = all.iter().any(|text| text.starts_with(exception.begins));
        ensure!(known, "no page has '{}'", exception.begins);
        ensure!(!exception.because.is_empty(), "{}", exception.begins);
    }
    for (from, _, because) in table::REPLACEMENTS {
        ensure!(all.iter().any(|text| text.contains(from)), "no page has '{from}' ({because})");
    }
    Ok(())
}

/// Scenarios, targets of the fuzzer and options that stand in the text of a page exist.
fn names_in_the_text_exist() -> Result<()> {
    let listed = run_to_end(Command::new(env::current_exe()?).arg("--list"), TIMEOUT)?;
    let scenarios = String::from_utf8(listed.stdout)?;
    let mut helps = Helps::default();
    let mut wrong = Vec::new();
    for name in page::names()? {
        for span in Page::read(&name)?.spans {
            if let Err(error) = exists(&span.text, &scenarios, &mut helps) {
                wrong.push(format!("{name}:{}: {error:#}", span.line));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn exists(span: &str, scenarios: &str, helps: &mut Helps) -> Result<()> {
    if let Some(target) = span.strip_prefix("fuzz ") {
        let file = page::path("fuzz/src").join(target).with_extension("rs");
        ensure!(file.is_file(), "there is no fuzz target '{target}'");
    } else if let Some(arguments) = span.strip_prefix("horolog ") {
        helps.explain(arguments)?;
    } else if let Some((module, _)) = span.split_once("::") {
        let is_ours = page::path("tests/src").join(module).with_extension("rs").is_file();
        ensure!(!is_ours || scenarios.contains(span), "there is no scenario '{span}'");
    }
    Ok(())
}

/// What commands say of themselves, each asked for once.
#[derive(Default)]
struct Helps(BTreeMap<String, String>);

impl Helps {
    /// Looks whether there are the subcommands and long options of a command that the text names.
    fn explain(&mut self, arguments: &str) -> Result<()> {
        let mut command = String::new();
        // What stands behind `--` is of another program; what names alternatives is no command.
        let ours = arguments.split(" -- ").next().unwrap_or_default();
        let mut options = Vec::new();
        for word in ours.split_whitespace() {
            let is_name = word.starts_with(|first: char| first.is_ascii_lowercase());
            if let Some(option) = word.strip_prefix("--") {
                options.push(option.split('=').next().unwrap_or(option));
            } else if options.is_empty() && is_name && self.has(&command, word)? {
                command = format!("{command} {word}");
            }
        }
        ensure!(
            !command.is_empty() || !options.is_empty() || arguments.contains(['|', '.']),
            "there is no command '{arguments}'"
        );
        let help = self.of(&command)?;
        for option in options {
            let known =
                help.contains(&format!("--{option}")) || ["help", "version"].contains(&option);
            ensure!(known, "'horolog{command}' has no --{option}");
        }
        Ok(())
    }

    /// Whether a command has this subcommand.
    fn has(&mut self, command: &str, word: &str) -> Result<bool> {
        let help = self.of(command)?;
        let listed = help.split("Commands:").nth(1).unwrap_or_default();
        Ok(listed.lines().any(|line| line.trim_start().split(' ').next() == Some(word)))
    }

    fn of(&mut self, command: &str) -> Result<String> {
        if let Some(known) = self.0.get(command) {
            return Ok(known.clone());
        }
        let mut help_command = Command::new(binary()?);
        help_command.args(command.split_whitespace()).arg("--help");
        let help = String::from_utf8(run_to_end(&mut help_command, TIMEOUT)?.stdout)?;
        self.0.insert(command.to_owned(), help.clone());
        Ok(help)
    }
}
