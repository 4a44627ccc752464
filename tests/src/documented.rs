//! Scenarios of the documentation: every command on every page is run, in private hosts, and does
//! what it is shown to do: it ends well, or goes on until it is interrupted and then ends well. What
//! cannot succeed on a test's machine is in a table, with what it says instead and why; a command
//! in neither class fails. Nothing is measured.

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use crate::scenario::scenario;
use crate::{ROOT, documented, scenarios};

mod page;
mod stage;
mod table;

use page::{Block, Documented, Page};
use stage::Stage;
use table::EXCEPTIONS;

/// All of them: one for each page.
pub(crate) fn all() -> Vec<Trial> {
    let mut all =
        Vec::from(scenarios!(&[], documented: blocks_are_told_apart, no_exception_is_stale));
    let names = match page::names() {
        Ok(names) => names,
        Err(error) => {
            all.push(scenario("documented::pages", &[], move || -> Result<()> { Err(error) }));
            return all;
        }
    };
    for name in names {
        let short = name.trim_start_matches("docs/").trim_end_matches(".md").to_lowercase();
        all.push(scenario(format!("documented::{short}"), ROOT, move || commands_work(&name)));
    }
    all
}

fn blocks_are_told_apart() -> Result<()> {
    page::blocks_are_told_apart()
}

/// Runs everything that a page has its reader type, and tells all that went wrong.
fn commands_work(name: &str) -> Result<()> {
    let page = Page::read(name)?;
    if page.commands().next().is_none() {
        return Ok(());
    }
    let mut stage = Stage::new()?;
    let mut wrong = Vec::new();
    for block in &page.blocks {
        let Block::Commands(commands) = block else { continue };
        for command in commands {
            let begun = std::time::Instant::now();
            let outcome = works(&mut stage, command);
            eprintln!("TRACE {:?} {}", begun.elapsed(), command.text);
            if let Err(error) = outcome {
                eprintln!("TRACE {error:#}");
                wrong.push(format!("{name}:{}: {error:#}", command.line));
            }
        }
        if let Err(error) = stage.end_block() {
            wrong.push(format!("{name}, the block of line {}: {error:#}", commands[0].line));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn works(stage: &mut Stage, command: &Documented) -> Result<()> {
    let mut text = command.text.clone();
    for (from, to, _) in table::IN_PLACE {
        text = text.replace(from, to);
    }
    let (code, said) = if table::stays(&text) {
        let Some((status, said)) = stage.start(&text)? else {
            return expected(&command.text, Some(0), "");
        };
        (status.code().filter(|&code| code != 0), said)
    } else {
        let output = stage.run(&text)?;
        let both = [output.stderr, output.stdout].concat();
        (output.status.code(), String::from_utf8_lossy(&both).into_owned())
    };
    expected(&command.text, code, &said)
}

/// Whether a command has ended as it should.
fn expected(text: &str, code: Option<i32>, said: &str) -> Result<()> {
    let exception = EXCEPTIONS.iter().find(|one| text.starts_with(one.begins));
    let judged = ["--fail-if", "runs compare"].iter().any(|words| text.contains(words));
    let right = match exception {
        Some(exception) => code == Some(exception.status) && said.contains(exception.says),
        None => code == Some(0) || judged && code == Some(1),
    };
    if right {
        return Ok(());
    }
    let last: Vec<&str> = said.lines().rev().take(4).collect();
    let wanted = exception.map_or("0".to_owned(), |one| {
        format!("{} and '{}', because {}", one.status, one.says, one.because)
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
    for (from, _, because) in table::IN_PLACE {
        ensure!(all.iter().any(|text| text.contains(from)), "no page has '{from}' ({because})");
    }
    Ok(())
}
