//! `horolog man` and `horolog completions`: the manual's pages and the completions of shells,
//! written from the definitions that parse the command line, so that they cannot say anything else.
//! Packages are built with these; whoever has the bare binary can call them as well.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::Cli;
use crate::failure::Failure;
use crate::output;

const NAME: &str = "horolog";

/// Write the manual: a page for each command, as horolog-load-ntp.1.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to; it is made where it is missing.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Date that the pages carry, such as 2026-01-31 [default: none].
    #[arg(long, value_name = "DATE", value_parser = NonEmptyStringValueParser::new())]
    date: Option<String>,
}

/// Print the completions of a shell.
///
/// Packages install them. By hand: `horolog completions bash >
/// ~/.local/share/bash-completion/completions/horolog`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Which shell's.
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let mut command = definition();
    command.build();
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .and_then(|()| write_pages(command, directory, args.date.as_deref().unwrap_or_default()))
        .map_err(|error| Failure::environment(format!("{}: {error}", directory.display())))
}

/// What is documented: each page would list `help` beside its commands, which all have.
fn definition() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}

/// Writes the page of a built command, and those of the commands in it.
fn write_pages(command: clap::Command, directory: &Path, date: &str) -> io::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner.clone(), directory, date)?;
    }
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command).date(date).source(source).manual("Horolog");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let path = directory.join(page.get_filename());
    fs::write(&path, spaced(&String::from_utf8_lossy(&text)))
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// A page with the space before lists of possible values made in the one way that mandoc has no
/// objection to.
fn spaced(page: &str) -> String {
    page.replace("\n.br\n\n.br\n", "\n.sp\n")
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut text);
    output::line(String::from_utf8_lossy(&text).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of the commands that a definition shows, with those of their commands.
    fn shown(command: &clap::Command, name: &str) -> Vec<String> {
        let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let names = inner.flat_map(|inner| shown(inner, &format!("{name}-{}", inner.get_name())));
        [name.to_owned()].into_iter().chain(names).collect()
    }

    #[test]
    fn each_command_has_a_page_that_names_its_options() {
        let directory = tempfile::TempDir::new().unwrap();
        let args =
            ManArgs { directory: directory.path().join("man"), date: Some("2026-01-31".into()) };
        man(&args).unwrap();
        let read = |name: &str| fs::read_to_string(args.directory.join(format!("{name}.1")));
        let names = shown(&definition(), NAME);
        assert!(names.iter().any(|name| name == "horolog-load-ntp"), "{names:?}");
        for name in &names {
            let page = read(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(page.contains(&format!(".TH {name} 1 2026-01-31 ")), "{page}");
        }
        assert_eq!(fs::read_dir(&args.directory).unwrap().count(), names.len());
        assert!(read("horolog-serve").unwrap().contains(r"\-\-limit\-burst"));
    }

    #[test]
    fn a_place_that_cannot_be_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ManArgs { directory: file.path().join("man"), date: None };
        let failure = man(&args).unwrap_err();
        assert_eq!(failure.status(), 3);
        assert!(failure.to_string().contains(file.path().to_str().unwrap()), "{failure}");
    }
}
