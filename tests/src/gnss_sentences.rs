//! Scenarios of receivers with unusual sentences: those that contain the time are served, and the
//! defects of others are reported.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use horolog_lab::receiver::{
    SentenceFormatter, SimulatedGnssReceiver, date, format_sentence, time_of_day,
};
use horolog_lab::{Lab, LabConfig};
use horolog_time::Span;
use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Engine, Server, server_address, wait_until};
use crate::scenario::Scenario;
use crate::{ROOT, gnss_sentences, scenarios};

const VOID_SENTENCE: &str = "GARMC,,V,,,,,,,,,,N";

pub(crate) fn all() -> Vec<Scenario> {
    Vec::from(scenarios!(ROOT, gnss_sentences:
        each_form_of_a_sentence_is_parsed_or_named,
        valid_forms_calibrate_and_others_are_counted,
    ))
}

/// Returns an RMC sentence of a second, with `end` after the date.
fn rmc(talker: &str, second: i64, fraction: &str, end: &str) -> String {
    let (time, date) = (time_of_day(second), date(second));
    format_sentence(&format!(
        "{talker}RMC,{time}{fraction},A,4807.038,N,01131.000,E,0.02,,{date}{end}"
    ))
}

fn zda(second: i64, end: &str) -> String {
    let (time, date) = (time_of_day(second), date(second));
    let (day, month, year) = (&date[..2], &date[2..4], &date[4..]);
    format_sentence(&format!("GPZDA,{time}.00,{day},{month},20{year}{end}"))
}

/// Returns a GGA sentence, which reports a fix by its quality and contains no date.
fn gga(second: i64, quality: u8) -> String {
    format_sentence(&format!("GPGGA,{}.00,,,,,{quality},00,99.99,,,,,,", time_of_day(second)))
}

/// Valid forms, each of which contains the time.
const VALID_FORMS: [(&str, SentenceFormatter); 20] = [
    ("ends-at-the-date", |second, _| rmc("GN", second, "", "")),
    ("letters-alone", |second, _| {
        let (time, date) = (time_of_day(second), date(second));
        format_sentence(&format!("GNRMC,{time},A,,N,,E,,,{date},,,A"))
    }),
    ("float-mode", |second, _| rmc("GN", second, ".000", ",2.00,E,F,S")),
    ("no-navigational-status", |second, _| rmc("GN", second, ".00", ",,,A,V,X")),
    ("zone", |second, _| zda(second, ",+03,00")),
    ("no-zone", |second, _| zda(second, "")),
    ("fraction", |second, _| rmc("GN", second - 1, ".700", ",,,A")),
    ("before-the-second", |second, _| rmc("GN", second - 1, ".999", ",,,A")),
    ("small-digits", |second, _| {
        let text = rmc("GN", second, "", ",,,A");
        let (text, checksum) = text.split_at(text.len() - 4);
        format!("{text}{}", checksum.to_lowercase())
    }),
    ("one-digit", |second, _| rmc("GN", second, "", ",,,A").replace("*0", "*")),
    ("line-feed", |second, _| rmc("GN", second, "", ",,,A").replace('\r', "")),
    ("three-ends", |second, _| rmc("GN", second, "", ",,,A").replace('\r', "\r\r")),
    ("noise", |second, _| {
        format!(
            "$GNRMC,\0\u{fe}$GPTXT,01,01,02,OK*3B\r\n{}{}",
            "$".repeat(300),
            rmc("GN", second, "", "")
        )
    }),
    ("talkers", |second, _| {
        let talkers = ["GP", "GL", "GA", "GB", "BD", "GQ", "QZ", "GI", "YD", "IN"];
        rmc(talkers[second.rem_euclid(10) as usize], second, "", ",,,A")
    }),
    ("two", |second, _| {
        format!("{}{}", rmc("GN", second, "", ",,,A"), format_sentence(VOID_SENTENCE))
    }),
    ("two-in-turns", |second, _| {
        if second % 2 == 0 { rmc("GN", second, "", ",,,A") } else { format_sentence(VOID_SENTENCE) }
    }),
    ("two-in-fifths", |second, _| {
        if second % 5 == 0 { rmc("GN", second, "", ",,,A") } else { format_sentence(VOID_SENTENCE) }
    }),
    ("two-dates", |second, _| {
        let (talker, years) = if second % 2 == 0 { ("GN", 0) } else { ("GA", 9) };
        rmc(talker, second + years * 31_557_600, "", ",,,A")
    }),
    ("date-with-a-fix", |second, _| format!("{}{}", gga(second, 1), zda(second, ",,"))),
    ("leap-out-of-season", |second, _| {
        let time = time_of_day(second);
        let shown = if second % 4 == 0 { format!("{}60", &time[..4]) } else { time };
        format_sentence(&format!("GNRMC,{shown},A,,,,,,,{},,,A", date(second)))
    }),
];

/// Invalid forms, with the reported reason.
const INVALID_FORMS: [(&str, SentenceFormatter, &str); 12] = [
    ("void", |_, _| format_sentence(VOID_SENTENCE), "the receiver has no fix yet"),
    (
        "void-with-zda",
        |second, _| format!("{}{}", format_sentence(VOID_SENTENCE), zda(second + 3, ",,")),
        "has no fix",
    ),
    (
        "date-without-a-fix",
        |second, _| format!("{}{}", gga(second, 0), zda(second + 3, ",,")),
        "has no fix",
    ),
    (
        "other-with-wrong-checksum",
        |_, _| format!("{}$GNRMC,1*00\r\n", format_sentence("GPGSV,1")),
        "with a wrong checksum; enable RMC or ZDA",
    ),
    ("mode-n", |second, _| rmc("GN", second, "", ",,,N"), "has no fix: mode N"),
    ("mode-e", |second, _| rmc("GN", second, "", ",,,E,S"), "dead reckoning"),
    ("simulator", |second, _| rmc("GN", second, "", ",,,S"), "a simulator"),
    ("no-date", |_, _| format_sentence("GPZDA,081253.19,,,,00,00"), "the receiver has no time yet"),
    (
        "no-day",
        |_, _| format_sentence("GNRMC,081253,A,,,,,,,300219"),
        "its date is missing or malformed; the last",
    ),
    (
        "no-checksum",
        |second, _| format!("${}RMC,V\r\n", second % 100),
        "without a checksum and none",
    ),
    ("wrong-checksum", |_, _| "$GNRMC,1*00\r\n".to_owned(), "with a wrong checksum and none"),
    ("other-kinds", |_, _| format_sentence("GPGSV,1"), "enable RMC or ZDA"),
];

fn find_source<'a>(status: &'a Value, name: &str) -> Option<&'a Value> {
    status["sources"].as_array()?.iter().find(|source| source["name"] == name)
}

/// One server has a receiver of each form: the valid ones agree, and the reasons of the others
/// persist.
fn each_form_of_a_sentence_is_parsed_or_named() -> Result<()> {
    let directory = TempDir::new()?;
    let spec = |name: &str| format!("gnss:{}", directory.path().join(name).display());
    let forms = INVALID_FORMS.map(|(name, form, _)| (name, form));
    let forms = || VALID_FORMS.iter().chain(&forms);
    let receivers = forms().map(|(name, form)| {
        Ok(SimulatedGnssReceiver::start_with_format(
            &directory.path().join(name),
            Span::ZERO,
            *form,
        )?)
    });
    let _receivers = receivers.collect::<Result<Vec<_>>>()?;
    let sources: Vec<_> = forms().map(|(name, _)| spec(name)).collect();
    let arguments: Vec<_> = sources.iter().flat_map(|source| ["--source", source]).collect();
    let lab = Lab::new(&LabConfig::default())?;
    let at = server_address(&lab, false)?;
    let server = Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)?;
    let mut wrong = Vec::new();
    let mut are_selected = || -> Result<bool> {
        let status = server.status()?;
        wrong.clear();
        for (name, _) in VALID_FORMS {
            let found = find_source(&status, &spec(name)).context(name)?;
            if found["state"] != "selected" && found["state"] != "truechimer" {
                wrong.push(format!("{name}: {found}"));
            }
        }
        for (name, _, why) in INVALID_FORMS {
            let found = find_source(&status, &spec(name)).context(name)?;
            let is_named = found["reason"].as_str().is_some_and(|reason| reason.contains(why));
            if found["state"] != "unusable" || !is_named {
                wrong.push(format!("{name}: {found}"));
            }
        }
        Ok(wrong.is_empty())
    };
    let reached = wait_until("each form is understood or named", &mut are_selected);
    let persisted = reached.and_then(|()| {
        (0..20).try_for_each(|_| {
            ensure!(are_selected()?, "states did not persist");
            std::thread::sleep(std::time::Duration::from_millis(150));
            Ok(())
        })
    });
    persisted.with_context(|| wrong.join("\n"))?;
    server.end("TERM").map(drop)
}

/// Starts a server that is calibrated by a receiver with sentences of this form.
fn start_calibrated(
    at: (&Lab, u16),
    directory: &Path,
    of: (&str, SentenceFormatter),
) -> Result<(SimulatedGnssReceiver, Server)> {
    let ((lab, port), (name, form)) = (at, of);
    let line = directory.join(name);
    let receiver = SimulatedGnssReceiver::start_with_format(&line, Span::ZERO, form)?;
    let gnss = line.display().to_string();
    let arguments = ["--gnss", &gnss, "--no-clock-control"];
    let at = (server_address(lab, false)?.ip(), port).into();
    Ok((receiver, Server::start_without_local(lab.server(), Engine::Socket, &[at], &arguments)?))
}

/// With `--gnss`, valid forms calibrate, and invalid sentences are counted by reason.
fn valid_forms_calibrate_and_others_are_counted() -> Result<()> {
    let valid = ["fraction", "two-in-turns", "ends-at-the-date"];
    let invalid = [("void", "void"), ("mode-n", "not_valid"), ("no-checksum", "no_checksum")];
    let directory = TempDir::new()?;
    let lab = Lab::new(&LabConfig::default())?;
    let mut ports = 1_124..;
    let mut start = |name: &str, form| {
        let port = ports.next().context("no port is left")?;
        start_calibrated((&lab, port), directory.path(), (name, form))
    };
    let find = |name: &&str| VALID_FORMS.iter().find(|(one, _)| one == name);
    let good = valid.iter().filter_map(find).map(|(name, form)| start(name, *form));
    let good = good.collect::<Result<Vec<_>>>()?;
    let bad = invalid.iter().filter_map(|(name, count)| {
        let (_, form, why) = INVALID_FORMS.iter().find(|(one, ..)| one == name)?;
        Some(start(name, *form).map(|(receiver, server)| (receiver, server, *count, *why)))
    });
    let bad = bad.collect::<Result<Vec<_>>>()?;
    ensure!((good.len(), bad.len()) == (valid.len(), invalid.len()), "unknown name of a form");
    for (_, server) in &good {
        wait_until("its time is known", || {
            Ok(server.status()?["calibration"]["state"] == "coarse")
        })?;
    }
    for (_, server, count, why) in &bad {
        wait_until(why, || {
            let calibration = server.status()?["calibration"].take();
            let reason = calibration["reason"].as_str().unwrap_or_default();
            Ok(calibration["sentences"][count].as_u64() > Some(1) && reason.contains(why))
        })?;
    }
    let (_, server, ..) = &bad[2];
    let rejected = server.status()?["calibration"]["rejected_sentence"].take();
    let rejected = rejected.as_str().unwrap_or_default();
    ensure!(rejected.starts_with("no checksum: $") && rejected.ends_with("RMC,V"), "{rejected}");
    Ok(())
}
