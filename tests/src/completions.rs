//! Scenarios of completions: the shells themselves load the output of `horolog completions`, and
//! complete commands and options by it.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use tempfile::TempDir;

use crate::process::{TIMEOUT, binary, run_to_end};
use crate::scenario::{Need, Scenario};
use crate::{completions, scenarios};

/// Zsh script that types into an interactive shell, and waits for the completed words.
const ZSH: &str = r#"
zmodload zsh/zpty
zpty shell TERM=dumb zsh -f -i
await() {
    local part output
    repeat 600; do
        zpty -r -t shell part && output+=$part
        [[ $output == *$1* ]] && return
        sleep 0.05
    done
    print -r -- "no '$1': $output"
    exit 1
}
zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -D; print ready-\$((1 + 1))"
await ready-2
zpty -w -n shell $'horolog lo\t'
await 'horolog load '
zpty -w -n shell $'ntp --sea\t'
await '--search='
zpty -d shell
print load --search
"#;

/// Fish script that prints the completions found by the builtin `complete`.
const FISH: &str = r"source $argv[1]/horolog.fish
set command (complete -C 'horolog lo' | string split -f 1 \t)
set option (complete -C 'horolog load ntp --sea' | string split -f 1 \t)
echo $command $option";

const BASH: &str = r#". "$1/horolog.bash"
complete -p horolog > /dev/null || exit
COMP_WORDS=(horolog lo); COMP_CWORD=1; _horolog horolog lo horolog; words=$COMPREPLY
COMP_WORDS=(horolog load ntp --sea); COMP_CWORD=3; _horolog horolog --sea ntp
echo "$words ${COMPREPLY[*]}""#;

pub(crate) fn all() -> Vec<Scenario> {
    let mut all = Vec::from(scenarios!(&[Need::Peer("bash")], completions: bash_completes));
    all.extend(scenarios!(&[Need::Peer("zsh")], completions: zsh_completes));
    all.extend(scenarios!(&[Need::Peer("fish")], completions: fish_completes));
    all
}

fn bash_completes() -> Result<()> {
    check_completion("bash", "horolog.bash", &["--norc", "-c", BASH, "bash"])
}

fn zsh_completes() -> Result<()> {
    check_completion("zsh", "_horolog", &["-f", "-c", ZSH, "zsh"])
}

fn fish_completes() -> Result<()> {
    check_completion("fish", "horolog.fish", &["--no-config", "-c", FISH])
}

/// Checks that a shell completes a command and an option. The directory of the completions is
/// appended to `arguments`.
fn check_completion(shell: &str, file: &str, arguments: &[&str]) -> Result<()> {
    let directory = TempDir::new()?;
    write_completions(shell, &directory.path().join(file))?;
    let mut command = Command::new(shell);
    command.args(arguments).arg(directory.path()).env("HOME", directory.path());
    let output = run_to_end(&mut command, TIMEOUT)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let completed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && stderr.is_empty(),
        "{}: {completed} {stderr}",
        output.status
    );
    ensure!(completed.trim() == "load --search", "{completed}");
    Ok(())
}

fn write_completions(shell: &str, file: &Path) -> Result<()> {
    let output = run_to_end(Command::new(binary()?).args(["completions", shell]), TIMEOUT)?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "{output:?}");
    Ok(fs::write(file, output.stdout)?)
}
