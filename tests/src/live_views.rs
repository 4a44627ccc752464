//! Scenarios of live views on a terminal: their content, the keys that end a run, and the restored
//! terminal.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, NtsKeLoadResult, PathStallResult};
use horolog_sys::namespace::die_with_parent;
use horolog_sys::pseudo_terminal::PseudoTerminal;
use tempfile::TempDir;

use crate::load_command::{has_finding, load, parse};
use crate::path_tcp::{far_end_address, start_far_end};
use crate::process::{Engine, Server, TIMEOUT, binary, run_to_end, server_address};
use crate::scenario::Scenario;
use crate::server_nts::NtsTestbed;
use crate::usage_error::{USAGE, check_refusal};
use crate::{ROOT, live_views, scenarios};

const ROWS: usize = 40;
const COLUMNS: usize = 120;
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT, live_views:
        a_load_run_is_shown_live_and_its_table_follows,
        keys_end_a_load_run_with_its_result,
        an_nts_ke_load_is_shown_live_and_a_key_ends_it,
        path_rows_are_shown_live,
        tcp_rows_are_shown_live_and_a_key_ends_them,
        an_observed_port_is_shown_live_and_a_key_ends_it,
        a_live_view_without_a_terminal_is_refused,
    ))
}

/// Screen of a terminal, for the output of the live views: characters by position, and switches to
/// the alternate screen.
pub(crate) struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Number of switches to the alternate screen, and (`restored`) back.
    pub(crate) alternate_count: usize,
    pub(crate) restored_count: usize,
}

impl Screen {
    fn new() -> Self {
        Self {
            cells: vec![vec![' '; COLUMNS]; ROWS],
            at: (0, 0),
            alternate_count: 0,
            restored_count: 0,
        }
    }

    /// Draws text with complete control sequences.
    fn draw(&mut self, text: &str) {
        let mut rest = text.chars();
        while let Some(character) = rest.next() {
            match character {
                '\x1b' if rest.as_str().starts_with('[') => self.control(&mut rest),
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                character => self.put(character),
            }
        }
    }

    fn put(&mut self, character: char) {
        let (row, column) = self.at;
        if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = character;
        }
        self.at.1 += 1;
    }

    /// Executes a control sequence (ECMA-48, section 5.4): CUP, ED and the alternate screen of
    /// xterm.
    fn control(&mut self, rest: &mut std::str::Chars<'_>) {
        let sequence = rest.as_str();
        let end = sequence[1..].find(|c: char| ('@'..='~').contains(&c)).map_or(0, |end| end + 1);
        let (parameters, last) = (&sequence[1..end], sequence[end..].chars().next());
        *rest = sequence[(end + 1).min(sequence.len())..].chars();
        match (last, parameters) {
            (Some('H'), position) => {
                let (row, column) = position.split_once(';').unwrap_or(("1", "1"));
                let index = |text: &str| text.parse::<usize>().unwrap_or(1).saturating_sub(1);
                self.at = (index(row), index(column));
            }
            (Some('J'), _) => self.cells = vec![vec![' '; COLUMNS]; ROWS],
            (Some('h'), "?1049") => self.alternate_count += 1,
            (Some('l'), "?1049") => self.restored_count += 1,
            _ => {}
        }
    }

    pub(crate) fn text(&self) -> String {
        let lines =
            self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Program on a pseudo-terminal, with standard output optionally in a file.
pub(crate) struct LiveTerminal {
    child: Child,
    terminal: PseudoTerminal,
    bytes: Vec<u8>,
    screen: Screen,
    directory: TempDir,
}

impl LiveTerminal {
    /// Starts a program with standard output in a file.
    pub(crate) fn start(command: Command) -> Result<Self> {
        let directory = TempDir::new()?;
        let stdout = fs::File::create(directory.path().join("stdout"))?;
        Self::start_to(command, directory, Some(stdout))
    }

    /// Starts a program with standard output on the terminal.
    pub(crate) fn start_alone(command: Command) -> Result<Self> {
        Self::start_to(command, TempDir::new()?, None)
    }

    fn start_to(
        mut command: Command,
        directory: TempDir,
        stdout: Option<fs::File>,
    ) -> Result<Self> {
        let terminal = PseudoTerminal::open()?;
        let near = fs::OpenOptions::new().read(true).write(true).open(terminal.path())?;
        let size = ["rows", &ROWS.to_string(), "cols", &COLUMNS.to_string()].map(ToOwned::to_owned);
        let sized = Command::new("stty").args(size).stdin(near.try_clone()?).status()?;
        ensure!(sized.success(), "stty: {sized}");
        let stdout = stdout.map_or_else(|| near.try_clone(), Ok)?;
        command.stdin(near.try_clone()?).stderr(near).stdout(Stdio::from(stdout));
        let child = die_with_parent(&mut command).spawn()?;
        Ok(Self { child, terminal, bytes: Vec::new(), screen: Screen::new(), directory })
    }

    /// Reads and draws the output so far.
    fn read_terminal(&mut self) {
        let mut buffer = [0; 4_096];
        while let Ok(len @ 1..) = self.terminal.read(&mut buffer) {
            self.bytes.extend_from_slice(&buffer[..len]);
        }
        // Only complete sequences are drawn; the rest is kept for the next call.
        let last_escape = self.bytes.iter().rev().take(16).position(|byte| *byte == b'\x1b');
        let keep = last_escape.map_or(self.bytes.len(), |back| self.bytes.len() - back - 1);
        let whole = match std::str::from_utf8(&self.bytes[..keep]) {
            Ok(_) => keep,
            Err(error) => error.valid_up_to(),
        };
        let drawn: Vec<u8> = self.bytes.drain(..whole).collect();
        self.screen.draw(&String::from_utf8_lossy(&drawn));
    }

    /// Waits until the screen satisfies `there`, and returns its text.
    pub(crate) fn until(&mut self, is_shown: impl Fn(&str) -> bool) -> Result<String> {
        let begun = Instant::now();
        loop {
            self.read_terminal();
            let text = self.screen.text();
            if is_shown(&text) {
                return Ok(text);
            }
            ensure!(begun.elapsed() < 2 * TIMEOUT, "expected text did not appear: {text}");
            thread::sleep(POLL_INTERVAL);
        }
    }

    pub(crate) fn press(&mut self, keys: &str) -> Result<()> {
        Ok(self.terminal.write_all(keys.as_bytes())?)
    }

    /// Waits for the end; returns the exit status, the content of standard output, and the screen.
    pub(crate) fn end(mut self) -> Result<(i32, String, Screen)> {
        let begun = Instant::now();
        loop {
            self.read_terminal();
            if let Some(status) = self.child.try_wait()? {
                self.read_terminal();
                let rest = String::from_utf8_lossy(&self.bytes).into_owned();
                self.screen.draw(&rest);
                let stdout = self.directory.path().join("stdout");
                let stdout = fs::read_to_string(stdout).unwrap_or_default();
                let screen = std::mem::replace(&mut self.screen, Screen::new());
                return Ok((status.code().context("no status")?, stdout, screen));
            }
            ensure!(begun.elapsed() < 2 * TIMEOUT, "program did not end: {}", self.screen.text());
            thread::sleep(POLL_INTERVAL);
        }
    }
}

impl Drop for LiveTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if the view shows a part of a run, by its label, of which at least a second has
/// passed.
pub(crate) fn is_past_first_second(text: &str, label: &str) -> bool {
    text.contains(label) && !text.contains(&format!("{label}0."))
}

/// Starts `horolog load ntp` on a pseudo-terminal.
fn start_live_load(lab: &Lab, arguments: &[&str]) -> Result<LiveTerminal> {
    let target = server_address(lab, false)?.to_string();
    let mut command = lab.client().command("setsid");
    command.arg("--ctty").arg(binary()?);
    command.args(["load", "ntp", &target, "--no-store", "--live", "--engine", "udp"]);
    command.args(arguments);
    LiveTerminal::start(command)
}

fn a_load_run_is_shown_live_and_its_table_follows() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    let mut run = start_live_load(&lab, &["-r", "1k-2k", "-t", "2"])?;
    let text = run.until(|text| text.contains("trial 2") && text.contains("1.50 k/s"))?;
    for label in ["engine udp", "intended", "answered", "latency", "lateness", "total", "q ends"] {
        ensure!(text.contains(label), "{label}: {text}");
    }
    // The first trial is in the list of completed ones.
    ensure!(text.contains("1.00 k/s") && text.contains("trial "), "{text}");
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0, "{status}: {stdout}");
    ensure!((screen.alternate_count, screen.restored_count) == (1, 1), "terminal was not restored");
    let rows = stdout.lines().filter(|line| line.contains('%')).count();
    ensure!(rows >= 2 && stdout.contains("Highest trial without loss"), "{stdout}");
    Ok(())
}

fn keys_end_a_load_run_with_its_result() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let _server = Server::start(lab.server(), Engine::Socket, &[at], &[])?;
    for key in ["q", "\x1b", "\x03"] {
        let json = TempDir::new()?;
        let path = json.path().join("result.json");
        let arguments = ["-r", "1k", "-t", "600", "--json", &path.display().to_string()];
        let mut run = start_live_load(&lab, &arguments)?;
        run.until(|text| is_past_first_second(text, "trial 1: "))?;
        run.press(key)?;
        let (status, _, screen) = run.end()?;
        ensure!(status == 0 && screen.restored_count == 1, "{key:?}: {status}");
        let result: LoadResult = parse(&fs::read(&path)?)?;
        ensure!(has_finding(&result, FindingCode::Interrupted), "{key:?}: {:?}", result.findings);
        ensure!(result.trials.len() == 1 && result.trials[0].sent > 0, "{key:?}: {result:?}");
    }
    // A second key ends the run at once, and the terminal is restored as well.
    let mut run = start_live_load(&lab, &["-r", "1k", "-t", "600", "--timeout", "60s"])?;
    run.until(|text| is_past_first_second(text, "trial 1: "))?;
    run.press("q")?;
    run.press("q")?;
    let (status, _, screen) = run.end()?;
    // The run may have ended after the first key.
    ensure!([0, 130].contains(&status) && screen.restored_count >= 1, "{status}");
    Ok(())
}

fn an_nts_ke_load_is_shown_live_and_a_key_ends_it() -> Result<()> {
    let open = ["--nts-ke-rate-per-prefix", "0", "--nts-ke-connections-per-prefix", "0"];
    let nts = NtsTestbed::start_on(Engine::Socket, &open)?;
    let directory = TempDir::new()?;
    let path = directory.path().join("result.json").display().to_string();
    let start_live = |arguments: &[&str]| -> Result<LiveTerminal> {
        let mut command = nts.lab.client().command("setsid");
        command.arg("--ctty").arg(binary()?).args(["load", "nts-ke", &nts.at.ip().to_string()]);
        command.args(["--live", "--no-store", "--timeout", "3s", "-c", "2", "--ca"]);
        command.arg(nts.certificate_path()).args(["--json", &path]).args(arguments);
        LiveTerminal::start(command)
    };
    // Trials of a search; completed ones are listed below.
    let mut run = start_live(&["--search", "pdr", "-r", "20-40", "-t", "1"])?;
    let text = run.until(|text| text.contains("trial 2") && text.contains("latency      50% "))?;
    ensure!(text.contains("intended ") && text.contains("total "), "{text}");
    let (status, stdout, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {}", screen.text());
    ensure!(stdout.lines().count() > 3, "{stdout}");
    // Clients that run until a key ends them.
    let mut run = start_live(&["-t", "600"])?;
    run.until(|text| is_past_first_second(text, "trial 1: ") && text.contains("answered "))?;
    run.press("q")?;
    let (status, _, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {}", screen.text());
    let result: NtsKeLoadResult = parse(&fs::read(&path)?)?;
    ensure!(result.trials[0].received > 0, "{result:?}");
    ensure!(result.findings.iter().any(|one| one.code == FindingCode::Interrupted), "{result:?}");
    Ok(())
}

fn path_rows_are_shown_live() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let at = far_end_address(&lab).to_string();
    for mode in [&["-r", "500"][..], &["--flows", "2"]] {
        let json = TempDir::new()?;
        let path = json.path().join("result.json").display().to_string();
        let mut command = lab.client().command("setsid");
        command.arg("--ctty").arg(binary()?).args(["path", "udp", &at, "--live", "--no-store"]);
        command.args(["-t", "1500ms", "-s", "64,128", "--json", &path]).args(mode);
        let mut run = LiveTerminal::start(command)?;
        let is_second_row = |text: &str| text.contains("row 2 of 2 (128 bytes, R 0)");
        let text = run.until(|text| is_second_row(text) && text.contains("sent"))?;
        ensure!(text.contains("latency      50% ") && text.contains("1 64 bytes"), "{text}");
        let (status, _, screen) = run.end()?;
        ensure!(status == 0 && screen.restored_count == 1, "{status}: {}", screen.text());
        let result: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
        ensure!(result["rows"].as_array().is_some_and(|rows| rows.len() == 2), "{result}");
    }
    Ok(())
}

/// Starts `horolog path tcp` on a pseudo-terminal.
fn start_live_tcp(lab: &Lab, arguments: &[&str]) -> Result<LiveTerminal> {
    let at = far_end_address(lab).to_string();
    let mut command = lab.client().command("setsid");
    command.arg("--ctty").arg(binary()?).args(["path", "tcp", &at, "--live", "--no-store"]);
    command.args(arguments);
    LiveTerminal::start(command)
}

fn tcp_rows_are_shown_live_and_a_key_ends_them() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let json = TempDir::new()?;
    let path = json.path().join("result.json").display().to_string();
    let mut run =
        start_live_tcp(&lab, &["-t", "1500ms", "--both-directions", "-c", "2", "--json", &path])?;
    // The view of a new row is empty until its first snapshot.
    for parts in [
        ["row 1 of 3 (latency 1 B)", "latency      50% ", "answered "],
        ["row 2 of 3 (out 65536 B): ", "1 latency 1 B", "retrans"],
        ["row 3 of 3 (back 65536 B)", "bytes  ", "2 out 65536 B"],
    ] {
        run.until(|text| parts.iter().all(|part| text.contains(part)))?;
    }
    let (status, _, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {}", screen.text());
    let result: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    let rows = ["latency", "bandwidth"].map(|of| result[of].as_array().map(Vec::len));
    ensure!(rows == [Some(1), Some(2)], "{result}");
    // A key ends a run with long rows and keeps the results so far.
    let mut run = start_live_tcp(&lab, &["-t", "1m", "--json", &path])?;
    run.until(|text| is_past_first_second(text, "row 1 of 2 (latency 1 B): "))?;
    run.press("q")?;
    let (status, _, screen) = run.end()?;
    ensure!(status == 0 && screen.restored_count == 1, "{status}: {}", screen.text());
    let result: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
    ensure!(result["latency"][0]["round_trips"].as_u64() > Some(0), "{result}");
    ensure!(result["findings"].to_string().contains("interrupted"), "{result}");
    Ok(())
}

fn an_observed_port_is_shown_live_and_a_key_ends_it() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let _far = start_far_end(&lab, &[])?;
    let (target, port) =
        (far_end_address(&lab).to_string(), far_end_address(&lab).port().to_string());
    for (more, answers) in [(&[][..], true), (&["--no-capture"], false)] {
        let mut command = lab.client().command("setsid");
        command.arg("--ctty").arg(binary()?).args(["path", "stall", "--watch", &port, "-t", "10m"]);
        command.args(["--live", "--json", "-", "--no-store"]).args(more);
        let mut watch = LiveTerminal::start(command)?;
        watch.until(|text| text.contains("no connections with data yet"))?;
        let mut traffic = lab.client().command(binary()?);
        traffic.args(["path", "stall", &target, "-n", "6", "-b", "1", "--pause", "0s"]);
        traffic.args(["--no-capture", "--no-store"]);
        let sent = run_to_end(&mut traffic, TIMEOUT)?;
        ensure!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
        let text = watch.until(|text| text.contains("Nagle + delayed ACK"))?;
        let row = text.lines().find(|line| line.contains("Nagle")).unwrap_or_default();
        let counted = row.split_whitespace().nth(2).is_some_and(|answers| answers != "-");
        ensure!(row.contains(&target) && counted == answers, "{text}");
        ensure!(text.contains(" of 600.0 s") && text.contains("stalls over time, "), "{text}");
        watch.press("q")?;
        let (status, stdout, screen) = watch.end()?;
        ensure!(status == 0 && screen.restored_count == 1, "{status}");
        let result: PathStallResult = parse(stdout.as_bytes())?;
        let watched = result.watched.context("no observed connections")?;
        let stalls = watched.connections.iter().map(|one| one.client_stalls + one.server_stalls);
        ensure!(stalls.sum::<u64>() >= 2, "{:?}", watched.connections);
        ensure!(result.findings.iter().any(|one| one.code == FindingCode::Interrupted));
    }
    Ok(())
}

fn a_live_view_without_a_terminal_is_refused() -> Result<()> {
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?.to_string();
    let output = run_to_end(&mut load(lab.client(), &[&at, "--live"])?, TIMEOUT)?;
    check_refusal(&output, USAGE, &["--live needs a terminal"])?;
    for protocol in ["udp", "tcp"] {
        let mut command = lab.client().command(binary()?);
        let output = run_to_end(command.args(["path", protocol, &at, "--live"]), TIMEOUT)?;
        check_refusal(&output, USAGE, &["--live needs a terminal"])?;
    }
    Ok(())
}
