//! Scenarios of the command line of ntpperf, as scripts use it: the binary under that name, its
//! table parsed by words. Nothing is timed, and no assertion fails by the losses of a busy machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Output;

use anyhow::{Context, Result, ensure};
use horolog_ke::{NtsKeClient, TrustAnchors};
use horolog_lab::{Lab, LabConfig};
use horolog_record::{FindingCode, LoadResult, RequestMode};
use horolog_sys::ethtool::set_gro;
use horolog_wire::ethernet::MacAddress;
use tempfile::TempDir;

use crate::load_command::{TIMEOUT, has_finding, parse};
use crate::load_modes::{Chronyd, SERVER_NAME, nts_chronyd};
use crate::process::{Engine, Server, binary, run_to_end, server_address};
use crate::ptp4l::{Ptp4l, Transport};
use crate::scenario::{Need, Queue, Scenario};
use crate::{ntpperf, scenarios};

const KE_PORT: u16 = 4460;
/// `AEAD_AES_SIV_CMAC_256`.
const ALGORITHM: u16 = 15;
const CLIENTS: &str = "10.64.0.0/10";
/// Options of every run; `-l` allows late sending, as on a busy machine.
const RATES: [&str; 5] = ["-r", "1000-2300", "-t", "0.2", "-l"];
/// Rate and number of clients of each row.
const ROWS: [(u64, u64); 3] = [(1000, 100), (1500, 150), (2250, 225)];

pub(crate) fn all() -> Vec<Scenario> {
    const ROOT: &[Need] = &[Need::Root];
    const CHRONYD: &[Need] = &[Need::Root, Need::Peer("chronyd")];
    const PTP4L: &[Need] =
        &[Need::Root, Need::Peer("ptp4l"), Need::Peer("pmc"), Need::Peer("setpriv")];
    let at_full_speed = scenarios!(ROOT, ntpperf: the_server_answers_as_chronyd_does);
    let mut all: Vec<_> = at_full_speed.map(|scenario| scenario.in_queue(Queue::Exclusive)).into();
    all.extend(scenarios!(ROOT, ntpperf:
        an_unresponsive_server_ends_the_run,
        impossible_requests_are_refused,
    ));
    all.extend(scenarios!(CHRONYD, ntpperf:
        chronyd_is_loaded_in_both_modes,
        chronyd_behind_a_plain_veth_is_measured,
        chronyd_is_loaded_with_an_imported_session,
    ));
    all.extend(scenarios!(PTP4L, ntpperf: ptp4l_is_loaded_in_both_modes));
    all
}

/// Lab, and a directory with the binary under the name `ntpperf`.
struct NtpperfTestbed {
    lab: Lab,
    directory: TempDir,
}

impl NtpperfTestbed {
    fn new() -> Result<Self> {
        let (lab, directory) = (Lab::new(&LabConfig::default())?, tempfile::tempdir()?);
        symlink(binary()?, directory.path().join("ntpperf"))?;
        Ok(Self { lab, directory })
    }

    /// Runs the binary with the options of ntpperf's examples, and more.
    fn run(&self, more: &[&str]) -> Result<Output> {
        let port = self.lab.client().first_interface();
        let mac = MacAddress(self.lab.server().first_interface().mac).to_string().to_uppercase();
        let mut command = self.lab.client().command(self.directory.path().join("ntpperf"));
        command.args(["-i", &port.name, "-m", &mac, "-s", CLIENTS]);
        command.args(["-d", &server_address(&self.lab, false)?.ip().to_string()]).args(more);
        run_to_end(&mut command, TIMEOUT)
    }

    /// Returns the rows of a successful run, and checks their heading.
    fn rows(&self, more: &[&str], head: [&str; 2]) -> Result<Vec<Row>> {
        let output = self.run(&[&RATES, more].concat())?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let context = || format!("{more:?}: {stderr}");
        ensure!(output.status.success() && stderr.contains("with engine"), "{}", context());
        let text = String::from_utf8(output.stdout)?;
        let mut lines = text.lines();
        ensure!([lines.next(), lines.next()] == head.map(Some), "{text}");
        let rows = lines.map(Row::parse).collect::<Result<Vec<_>>>().with_context(context)?;
        ensure!(rows.len() == ROWS.len(), "{text}{stderr}");
        for (row, expected) in rows.iter().zip(ROWS) {
            ensure!((row.rate, row.clients) == expected, "{row:?}");
        }
        Ok(rows)
    }
}

/// Row of the table, parsed as words between spaces.
#[derive(Debug)]
struct Row {
    rate: u64,
    clients: u64,
    /// Shares of lost requests, of invalid replies and of the two kinds of replies, in percent.
    shares: [f64; 4],
    /// Minimum, mean, maximum and standard deviation, if the row has them.
    statistics: Option<[i64; 4]>,
}

impl Row {
    fn parse(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let share = |at: usize| -> Result<f64> {
            let word = words.get(at).with_context(|| format!("too short: {line}"))?;
            Ok(word.strip_suffix('%').with_context(|| format!("no share: {line}"))?.parse()?)
        };
        let panel = match words.get(6..).unwrap_or_default() {
            [] => None,
            [min, mean, max, stddev] => {
                Some([min.parse()?, mean.parse()?, max.parse()?, stddev.parse()?])
            }
            _ => anyhow::bail!("unexpected number of words: {line}"),
        };
        Ok(Self {
            rate: words.first().context("empty line")?.parse()?,
            clients: words.get(1).context("one word")?.parse()?,
            shares: [share(2)?, share(3)?, share(4)?, share(5)?],
            statistics: panel,
        })
    }

    /// Checks the shares, and the order of the statistics; `kinds` are the expected kinds of
    /// replies.
    fn check(&self, kinds: [bool; 2]) -> Result<()> {
        let [lost, invalid, first, second] = self.shares;
        ensure!(invalid == 0.0 && (0.0..50.0).contains(&lost), "{self:?}");
        ensure!(kinds == [first > 0.0, second > 0.0], "{self:?}");
        let most = first.max(second);
        let sum = if kinds == [true, true] { lost + most } else { lost + first + second };
        ensure!((99.0..=101.0).contains(&sum), "{self:?}");
        let [min, mean, max, stddev] = self.statistics.unwrap_or_default();
        ensure!(min <= mean && mean <= max && stddev >= 0, "{self:?}");
        Ok(())
    }
}

const LEFT: &str = "               |          responses            |";
const NTP: &str = "rate   clients |  lost invalid   basic  xleave |";
const PTP: &str = "rate   clients |  lost invalid   delay sync/fw |";
const TIMES: &str = "        response time (ns)";
const OFFSETS: &str = "     TX timestamp offset (ns)";
const FIGURES: &str = "    min    mean     max stddev";

/// Loads a server in basic and interleaved mode, with response times and with offsets. The server
/// knows the clients when counting begins, so that few replies of interleaved mode are basic ones.
fn load_in_both_modes(scene: &NtpperfTestbed) -> Result<()> {
    let columns = format!("{NTP}{FIGURES}");
    let times = format!("{LEFT}{TIMES}");
    let offsets = format!("{LEFT}{OFFSETS}");
    for row in scene.rows(&["-B"], [&times, &columns])? {
        row.check([true, false])?;
        ensure!(row.statistics.is_some_and(|[min, ..]| min >= 0), "{row:?}");
    }
    for row in scene.rows(&["-B", "-e", "-o", "0"], [&offsets, &columns])? {
        row.check([true, false])?;
    }
    for (more, above) in [(&["-I"][..], &times), (&["-I", "-o", "1.95e-6"], &offsets)] {
        for row in scene.rows(more, [above, &columns])? {
            ensure!(row.shares[3] > 50.0 && row.statistics.is_some(), "{row:?}");
        }
    }
    Ok(())
}

fn chronyd_is_loaded_in_both_modes() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let _chronyd = Chronyd::start(scene.lab.server(), &[])?;
    load_in_both_modes(&scene)
}

/// The peer end of a veth accepts no XDP frames unless GRO is on there, so the packet engine sends.
/// A rate below the usual ones of ntpperf is accepted too.
fn chronyd_behind_a_plain_veth_is_measured() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let server = scene.lab.server();
    let interface = server.first_interface().name.clone();
    server.run(|| set_gro(&interface, false))??;
    let _chronyd = Chronyd::start(server, &[])?;
    let output = scene.run(&["-B", "-I", "-B", "-r", "100", "-t", "0.5"])?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && stderr.contains("with engine packet"), "{stderr}");
    ensure!(stderr.contains("takes no frames from XDP"), "{stderr}");
    let text = String::from_utf8(output.stdout)?;
    let row = Row::parse(text.lines().nth(2).with_context(|| format!("{text}{stderr}"))?)?;
    ensure!((row.rate, row.clients, row.shares[0]) == (100, 10, 0.0), "{row:?}");
    row.check([true, false])
}

fn the_server_answers_as_chronyd_does() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let at = server_address(&scene.lab, false)?;
    for engine in Engine::ALL {
        let _server = Server::start(scene.lab.server(), engine, &[at], &[])?;
        load_in_both_modes(&scene).with_context(|| format!("{engine:?}"))?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
}

/// The key and a cookie of another client's session authenticate requests, and are not reported.
fn chronyd_is_loaded_with_an_imported_session() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let (_chronyd, _directory, certificate) = nts_chronyd(scene.lab.server())?;
    let trust = TrustAnchors::from_pem_file(Some(certificate.as_ref()))?;
    let address = (scene.lab.server().first_interface().ipv4, KE_PORT).into();
    let nts_session = scene.lab.client().run(|| {
        NtsKeClient::new(&trust, &[ALGORITHM])?.exchange_keys(SERVER_NAME, address, TIMEOUT)
    })??;
    let send_only = format!(
        "{},{}",
        hex(&nts_session.c2s),
        hex(nts_session.cookies.first().context("no cookie")?)
    );
    let complete = format!("{send_only},{}", hex(&nts_session.s2c));
    let file = scene.directory.path().join("r.json");
    let path = file.display().to_string();
    for (session, opened) in [(&send_only, false), (&complete, true)] {
        let more = ["-B", "-S", session, "--json", &path];
        let above = format!("{LEFT}{TIMES}");
        for row in scene.rows(&more, [&above, &format!("{NTP}{FIGURES}")])? {
            row.check([true, false])?;
        }
        let text = fs::read(&file)?;
        let result: LoadResult = parse(&text)?;
        let json = String::from_utf8(text)?;
        ensure!(!json.contains(&send_only) && json.contains("(hidden)"), "{:?}", result.command);
        ensure!(result.mode == RequestMode::NtpNts, "{:?}", result.mode);
        ensure!(
            has_finding(&result, FindingCode::RepliesNotDecrypted) != opened,
            "{:?}",
            result.findings
        );
        ensure!(result.trials.iter().all(|trial| trial.responses.nts == trial.received), "{json}");
    }
    Ok(())
}

/// Delay requests have no statistics; NetSync Monitor has, and both kinds of its replies are
/// counted.
fn ptp4l_is_loaded_in_both_modes() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let _ptp4l = Ptp4l::start(scene.lab.server(), Transport::Ipv4, 7)?;
    for more in [&["-D", "7"][..], &["-D", "7", "-M"]] {
        for row in scene.rows(more, [LEFT, PTP])? {
            row.check([true, false])?;
            ensure!(row.statistics.is_none(), "{row:?}");
        }
    }
    let columns = format!("{PTP}{FIGURES}");
    for (more, panel) in [(&["-N", "7"][..], TIMES), (&["-N", "7", "-o", "0"], OFFSETS)] {
        for row in scene.rows(more, [&format!("{LEFT}{panel}"), &columns])? {
            row.check([true, true])?;
            ensure!(row.statistics.is_some(), "{row:?}");
        }
    }
    Ok(())
}

/// A run ends after its first row if more than half of the requests are lost.
fn an_unresponsive_server_ends_the_run() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    for (more, columns) in [(&["-B", "-o", "0"][..], 10), (&["-D", "0"], 6)] {
        let output = scene.run(&[&RATES, more].concat())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.code() == Some(1), "{:?}: {text}", output.status);
        let rows: Vec<_> = text.lines().skip(2).collect();
        ensure!(rows.len() == 1 && rows[0].split_whitespace().count() == columns, "{text}");
        ensure!(rows[0].starts_with("1000       100 100.00%   0.00%   0.00%   0.00%"), "{text}");
    }
    Ok(())
}

/// Impossible requests are refused with one line, and without standard output.
fn impossible_requests_are_refused() -> Result<()> {
    let scene = NtpperfTestbed::new()?;
    let cases: [(&[&str], i32, &str); 7] = [
        (&[], 2, "-B"),
        (&["-B", "-M"], 2, "cannot be used"),
        (&["-B", "-r", "0"], 2, "from 1 to 1000000000"),
        (&["-B", "-x", "1"], 2, "above 1"),
        (&["-B", "-S", "c0ffee,c0ffee"], 2, "32"),
        (&["-B", "-o", "0", "-H"], 3, "hardware timestamps"),
        (&["-B", "-p", "0"], 2, "threads"),
    ];
    for (more, status, words) in cases {
        let output = scene.run(more)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(status), "{more:?}: {stderr}");
        ensure!(stderr.contains(words) && !stderr.contains("c0ffee"), "{more:?}: {stderr}");
        ensure!(stderr.trim_end().lines().count() == 1 && output.stdout.is_empty(), "{stderr}");
    }
    Ok(())
}
