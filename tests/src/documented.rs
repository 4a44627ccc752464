//! Scenarios of the documentation: README and tutorial as a whole, and of the other pages all
//! commands but measurements of a kind that an earlier page has, are run in lab hosts, and end
//! with status 0 by themselves or after an interrupt. Commands that cannot succeed in a lab are
//! listed in [`table::EXCEPTIONS`] with the expected message and the reason; any other failure
//! fails the scenario. Nothing is measured. The command line itself is tested for all commands
//! (`documented_commands` in the CLI).

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Queue, Scenario, scenario};
use crate::{ROOT, documented, scenarios};

mod fixtures;
mod page;
mod table;
mod testbed;

use page::{Block, Documented, Page};
use table::{EXCEPTIONS, Exception};
use testbed::Testbed;

/// Returns the scenarios, one for each page.
pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[], documented:
        blocks_are_classified,
        no_exception_is_stale,
        measuring_pages_are_listed,
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
        let is_measuring = table::MEASURING_PAGES.contains(&name.as_str());
        let queue = if is_measuring { Queue::Measuring } else { Queue::Shared };
        let page = scenario(format!("documented::{short}"), ROOT, move || run_page(&name));
        all.push(page.in_queue(queue));
    }
    all
}

fn blocks_are_classified() -> Result<()> {
    page::blocks_are_classified()
}

/// Runs the commands of a page and reports all failures.
fn run_page(name: &str) -> Result<()> {
    let page = Page::read(name)?;
    if page.commands().next().is_none() {
        return Ok(());
    }
    let mut testbed = Testbed::new(table::UNPRIVILEGED_PAGES.contains(&name))?;
    let (mut wrong, mut kinds) = (Vec::new(), kinds_before(name)?);
    for block in &page.blocks {
        let Block::Commands(commands) = block else { continue };
        for command in commands {
            if !is_run(name, command, &mut kinds) {
                continue;
            }
            if let Err(error) = run_documented(&mut testbed, command) {
                wrong.push(format!("{name}:{}: {error:#}", command.line));
            }
        }
        if let Err(error) = testbed.end_block() {
            wrong.push(format!("{name}, the block of line {}: {error:#}", commands[0].line));
        }
    }
    if let Err(error) = testbed.end_page() {
        wrong.push(format!("{name}: {error:#}"));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Returns true if a command of a page is run, after measurements of `kinds`, to which its own is
/// added.
fn is_run(name: &str, command: &Documented, kinds: &mut HashSet<String>) -> bool {
    let is_first = table::kind(&command.text).is_none_or(|kind| kinds.insert(kind));
    is_first || table::WHOLE_PAGES.contains(&name)
}

/// Returns the kinds of measurements on pages that are run as a whole and on those before this one.
fn kinds_before(name: &str) -> Result<HashSet<String>> {
    let mut kinds = HashSet::new();
    let whole = table::WHOLE_PAGES.iter().map(|page| (*page).to_owned());
    for page in whole.chain(page::names()?.into_iter().take_while(|page| page != name)) {
        let page = Page::read(&page)?;
        kinds.extend(page.commands().filter_map(|command| table::kind(&command.text)));
    }
    Ok(kinds)
}

/// [`table::MEASURING_PAGES`] lists the pages of which measurements are run, and no others.
fn measuring_pages_are_listed() -> Result<()> {
    let mut wrong = Vec::new();
    for name in page::names()? {
        let (page, mut kinds) = (Page::read(&name)?, kinds_before(&name)?);
        let measured = page.commands().find(|command| {
            is_run(&name, command, &mut kinds) && table::is_measurement(&command.text)
        });
        if measured.is_some() != table::MEASURING_PAGES.contains(&name.as_str()) {
            wrong.push(format!("{name}: {measured:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn run_documented(stage: &mut Testbed, command: &Documented) -> Result<()> {
    let mut text = command.text.clone();
    for (from, to, _) in table::REPLACEMENTS {
        text = text.replace(from, to);
    }
    let (code, output_text) = if table::is_long_running(&text) {
        let fails = exception(&command.text).is_some();
        let Some((status, output_text)) = stage.start(&text, fails)? else {
            return check_outcome(&command.text, Some(0), "");
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
    check_outcome(&command.text, code, &output_text)
}

fn exception(text: &str) -> Option<&'static Exception> {
    EXCEPTIONS.iter().find(|one| text.starts_with(one.prefix))
}

/// Checks the exit status and the output of a command.
fn check_outcome(text: &str, code: Option<i32>, output_text: &str) -> Result<()> {
    let exception = exception(text);
    let may_end_with_1 = [
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
    // An interrupted command without results reports the interrupt.
    let waits = text.starts_with("horolog at ");
    let cut = ["ending early", "Ended by a signal", "interrupted before"]
        .iter()
        .any(|words| output_text.contains(words))
        && !output_text.contains("cannot write");
    let is_expected = match exception {
        Some(exception) => {
            code == Some(exception.status) && output_text.contains(exception.message)
        }
        None => match code {
            Some(0) => true,
            Some(1) => may_end_with_1,
            Some(130) => cut || waits,
            Some(3) => cut,
            _ => false,
        },
    };
    if is_expected {
        return Ok(());
    }
    let last: Vec<&str> = output_text.lines().rev().take(4).collect();
    let wanted = exception.map_or("0".to_owned(), |one| {
        format!("{} and '{}', because {}", one.status, one.message, one.reason)
    });
    bail!("'{text}' ended with {code:?} instead of {wanted}: {}", last.join(" | "))
}

/// Each exception and replacement matches a command of a page.
fn no_exception_is_stale() -> Result<()> {
    let mut all = Vec::new();
    for name in page::names()? {
        let page = Page::read(&name).with_context(|| name)?;
        all.extend(page.commands().map(|command| command.text.clone()));
    }
    for exception in EXCEPTIONS {
        let known = all.iter().any(|text| text.starts_with(exception.prefix));
        ensure!(known, "no page has '{}'", exception.prefix);
        ensure!(!exception.reason.is_empty(), "{}", exception.prefix);
    }
    for (from, _, because) in table::REPLACEMENTS {
        ensure!(all.iter().any(|text| text.contains(from)), "no page has '{from}' ({because})");
    }
    Ok(())
}

/// Scenarios, fuzz targets and options that are named in the text of a page exist.
fn names_in_the_text_exist() -> Result<()> {
    let listed = run_to_end(Command::new(env::current_exe()?).arg("--list"), TIMEOUT)?;
    let scenarios = String::from_utf8(listed.stdout)?;
    let mut helps = HelpTexts::default();
    let mut wrong = Vec::new();
    for name in page::names()? {
        for span in Page::read(&name)?.spans {
            if let Err(error) = check_name(&span.text, &scenarios, &mut helps) {
                wrong.push(format!("{name}:{}: {error:#}", span.line));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn check_name(span: &str, scenarios: &str, helps: &mut HelpTexts) -> Result<()> {
    if let Some(target) = span.strip_prefix("fuzz ") {
        let file = page::path("fuzz/src").join(target).with_extension("rs");
        ensure!(file.is_file(), "there is no fuzz target '{target}'");
    } else if let Some(arguments) = span.strip_prefix("horolog ") {
        helps.check_arguments(arguments)?;
    } else if let Some((module, _)) = span.split_once("::") {
        let is_ours = page::path("tests/src").join(module).with_extension("rs").is_file();
        ensure!(!is_ours || scenarios.contains(span), "there is no scenario '{span}'");
    }
    Ok(())
}

/// Help texts by command, each read once.
#[derive(Default)]
struct HelpTexts(BTreeMap<String, String>);

impl HelpTexts {
    /// Checks that the subcommands and long options of `arguments` exist.
    fn check_arguments(&mut self, arguments: &str) -> Result<()> {
        let mut command = String::new();
        // Words after ` -- ` belong to another program; words that list alternatives are not a
        // command.
        let ours = arguments.split(" -- ").next().unwrap_or_default();
        let mut options = Vec::new();
        for word in ours.split_whitespace() {
            let is_name = word.starts_with(|first: char| first.is_ascii_lowercase());
            if let Some(option) = word.strip_prefix("--") {
                options.push(option.split('=').next().unwrap_or(option));
            } else if options.is_empty() && is_name && self.has_subcommand(&command, word)? {
                command = format!("{command} {word}");
            }
        }
        ensure!(
            !command.is_empty() || !options.is_empty() || arguments.contains(['|', '.']),
            "there is no command '{arguments}'"
        );
        let help = self.help_of(&command)?;
        for option in options {
            let known =
                help.contains(&format!("--{option}")) || ["help", "version"].contains(&option);
            ensure!(known, "'horolog{command}' has no --{option}");
        }
        Ok(())
    }

    /// Returns true if a command has this subcommand.
    fn has_subcommand(&mut self, command: &str, word: &str) -> Result<bool> {
        let help = self.help_of(command)?;
        let listed = help.split("Commands:").nth(1).unwrap_or_default();
        Ok(listed.lines().any(|line| line.trim_start().split(' ').next() == Some(word)))
    }

    fn help_of(&mut self, command: &str) -> Result<String> {
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
