//! `horolog man` and `horolog completions`: man pages and shell completions, generated from the
//! definitions that parse the command line, so that they cannot differ from it. They are used to
//! build packages, and are available to users of the bare binary.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::Cli;
use crate::failure::CommandFailure;
use crate::output;

const NAME: &str = "horolog";

/// Exit statuses of all commands, with their meanings.
pub(crate) const STATUSES: [(&str, &str); 6] = [
    ("0", "Success."),
    ("1", "The measurement failed: no reply, a failed limit or an error-level finding."),
    ("2", "Usage error."),
    ("3", "Missing prerequisite on this host, or far end unreachable."),
    ("4", "A campaign agent with the same name was started later and took over."),
    ("130", "Terminated by a second Ctrl\\-C, without a result."),
];
const PASSED_ON: &str =
    "Commands that run a program (after, at, lab exec) end with the status of that program.";
const GUIDES: &str = "The guides are in /usr/share/doc/horolog/docs where the Debian package is \
                      installed.";

/// Write the manual: one page for each command, such as horolog-load-ntp.1.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Directory to write the pages to; created if missing.
    #[arg(value_name = "DIRECTORY")]
    directory: PathBuf,
    /// Date of the pages, such as 2026-01-31 [default: none].
    #[arg(long, value_name = "DATE", value_parser = NonEmptyStringValueParser::new())]
    date: Option<String>,
}

/// Print the completion script for a shell.
///
/// Packages install them. By hand: `horolog completions bash >
/// ~/.local/share/bash-completion/completions/horolog`.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// Shell to complete in.
    shell: Shell,
}

pub(crate) fn man(args: &ManArgs) -> Result<(), CommandFailure> {
    let mut command = definition();
    command.build();
    let directory = &args.directory;
    let date = args.date.as_deref().unwrap_or_default();
    fs::create_dir_all(directory)
        .and_then(|()| write_pages(&command, &mut Vec::new(), directory, date))
        .map_err(|error| CommandFailure::environment(format!("{}: {error}", directory.display())))
}

/// The documented definition: without `help`, which every page would otherwise list among its
/// commands.
fn definition() -> clap::Command {
    Cli::command().disable_help_subcommand(true)
}

/// Writes the page of a built command, and those of its subcommands. `above` are the names of the
/// pages of its parent commands.
fn write_pages(
    command: &clap::Command,
    above: &mut Vec<String>,
    directory: &Path,
    date: &str,
) -> io::Result<()> {
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).date(date).source(source).manual("Horolog");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let text = completed(&String::from_utf8_lossy(&text), command, above);
    let path = directory.join(page.get_filename());
    fs::write(&path, text)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;

    above.push(page.get_filename().trim_end_matches(".1").to_owned());
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write_pages(inner, above, directory, date)?;
    }
    above.pop();
    Ok(())
}

/// A generated page with additions: a date if there is none, the usage line of the command instead
/// of a list of flags without their values, and the exit statuses. Lines are not stretched, and the
/// space before lists of possible values is made in the only way that mandoc accepts.
fn completed(page: &str, command: &clap::Command, above: &[String]) -> String {
    let page = page.replace("\n.br\n\n.br\n", "\n.sp\n");
    let page = page.replacen(" 1  \"", " 1 \"\" \"", 1);
    let page = page.replacen("\n.SH NAME\n", "\n.nh\n.ad l\n.SH NAME\n", 1);
    let (head, rest) = page.split_once(".SH SYNOPSIS\n").unwrap_or((&page, ""));
    let (_, rest) = rest.split_once(".SH DESCRIPTION\n").unwrap_or(("", rest));
    let (body, version) = rest.split_once(".SH VERSION\n").unwrap_or((rest, ""));
    let (usage, statuses, others) = (usage(command), statuses(), others(above));
    format!(
        "{head}.SH SYNOPSIS\n{usage}.SH DESCRIPTION\n{body}.SH EXIT STATUS\n{statuses}\
         .SH SEE ALSO\n{others}.SH VERSION\n{version}"
    )
}

/// The usage of a command, a line for each form, its words in bold.
fn usage(command: &clap::Command) -> String {
    let text = command.clone().render_usage().to_string();
    let lines = text.trim_start_matches("Usage:").lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty()).map(|line| {
        let operands = [" [", " <", " -"].iter().filter_map(|start| line.find(start)).min();
        let (words, operands) = line.split_at(operands.unwrap_or(line.len()));
        let operands = operands.replace('<', "\\fI").replace('>', "\\fR");
        format!("\\fB{words}\\fR{operands}\n").replace('-', "\\-")
    });
    lines.collect::<Vec<_>>().join(".br\n")
}

fn statuses() -> String {
    let each = STATUSES.iter().map(|(status, when)| format!(".TP\n{status}\n{when}\n"));
    each.chain([format!(".PP\n{PASSED_ON}\n")]).collect()
}

/// References to the pages of the parent commands, and to further documentation.
fn others(above: &[String]) -> String {
    let pages: Vec<String> =
        above.iter().map(|name| format!("\\fB{}\\fR(1)", name.replace('-', "\\-"))).collect();
    match pages.len() {
        0 => format!("{GUIDES}\n"),
        _ => format!("{}\n.PP\n{GUIDES}\n", pages.join(",\n")),
    }
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), CommandFailure> {
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
    fn page_without_a_date_has_an_empty_date_field() {
        let directory = tempfile::TempDir::new().unwrap();
        man(&ManArgs { directory: directory.path().into(), date: None }).unwrap();
        let page = fs::read_to_string(directory.path().join("horolog-load-nts-ke.1")).unwrap();
        let title = page.lines().find(|line| line.starts_with(".TH ")).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(title, format!(r#".TH horolog-load-nts-ke 1 "" "horolog {version}" Horolog"#));
    }

    #[test]
    fn page_has_required_values_exit_status_and_see_also() {
        let directory = tempfile::TempDir::new().unwrap();
        man(&ManArgs { directory: directory.path().into(), date: None }).unwrap();
        let read = |name: &str| fs::read_to_string(directory.path().join(name)).unwrap();
        let page = read("horolog-load-nts-ke.1");
        let synopsis = r"
.SH SYNOPSIS
\fBhorolog load nts\-ke\fR [OPTIONS] \-\-ca \fIFILE\fR \fIHOST[:PORT]\fR
.SH DESCRIPTION
";
        assert!(page.contains(synopsis), "{page}");
        assert!(page.contains("\n.SH EXIT STATUS\n.TP\n0\n"), "{page}");
        assert!(page.contains("\n.SH SEE ALSO\n\\fBhorolog\\fR(1),\n\\fBhorolog\\-load\\fR(1)\n"));
        assert!(read("horolog-at.1").contains("\n.br\n\\fBhorolog at\\fR \\fICOMMAND\\fR\n"));
    }

    #[test]
    fn error_names_an_invalid_directory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let args = ManArgs { directory: file.path().join("man"), date: None };
        let failure = man(&args).unwrap_err();
        assert_eq!(failure.status(), 3);
        assert!(failure.to_string().contains(file.path().to_str().unwrap()), "{failure}");
    }
}
