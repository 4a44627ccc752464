//! Pages of long runs: they stay small, and what they show is still what was measured; and pages
//! that were changed, of which each change is found.

use std::fs;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::browser::Browser;
use crate::pages::{Seen, page_of, shows};
use crate::pages_figures::Figures;
use crate::pages_variants::{Fill, of_file, without};
use crate::scenario::Need;
use crate::{pages_of_long_runs, scenarios};

/// Ten minutes, a trial for each and a point for each second.
const TRIALS: u64 = 10;
const POINTS: u64 = 600;
const SAMPLES: u64 = 10_000;
const INTERVAL_NS: u64 = 100_000_000;

/// What is changed in a page, of which result, and what the complaint is about.
struct Change {
    of: &'static str,
    script: &'static str,
    about: &'static str,
}

const CHANGES: [Change; 11] = [
    Change {
        of: "load",
        script: "document.querySelectorAll('#trials tbody td')[4].textContent = '1,000,001'",
        about: "'1,000,001' in place of 1000000",
    },
    Change {
        of: "load",
        script: "document.querySelectorAll('#trials tbody td')[4].textContent = '-'",
        about: "'-' is no figure",
    },
    Change {
        of: "load",
        script: "document.querySelectorAll('#trials tr')[3].children[21].textContent = '0 ns'",
        about: "'0 ns' where nothing is",
    },
    Change {
        of: "load",
        script: "document.querySelectorAll('#intervals tr').forEach((row) => { \
                 row.append(row.lastElementChild.cloneNode(true)); })",
        about: "nothing claims the column",
    },
    Change {
        of: "load",
        script: "document.querySelector('#trials tbody tr').remove()",
        about: "2 rows in place of 3",
    },
    Change {
        of: "load",
        script: "const it = document.querySelector('#trials').cloneNode(true); it.id = 'others'; \
                 document.querySelector('main').append(it)",
        about: "nothing claims the table",
    },
    Change {
        of: "load",
        script: "document.querySelector('.bars .number').textContent = '59.90%'",
        about: "bars Where requests were lost",
    },
    Change {
        of: "load",
        script: "document.querySelector('.verdict .figure').textContent = '3.97 M/s'",
        about: "'3.97 M/s' in place of 3980000.5",
    },
    Change {
        of: "load",
        script: "document.querySelector('.figures dd').textContent = '3.63 µs'",
        about: "'3.63 µs' in place of 3615",
    },
    Change {
        of: "host_clock",
        script: "document.querySelector('.scroll tbody td').textContent = '1000'",
        about: "'1000' in place of 250",
    },
    Change {
        of: "query",
        script: "const it = document.getElementById('plots'); const plots = \
                 JSON.parse(it.textContent); plots[0].views[0].series[0].points[0][1] += 0.001; \
                 it.textContent = JSON.stringify(plots)",
        about: "the series 'time.example' is none that is declared",
    },
];

/// All of them.
pub(crate) fn all(needs: &'static [Need]) -> Vec<Trial> {
    scenarios!(needs, pages_of_long_runs:
        a_page_of_ten_minutes_is_small_and_right,
        each_change_of_a_page_is_found,
    )
    .into()
}

/// The page of this result, as it is to be seen.
fn opened(browser: &mut Browser, directory: &TempDir, name: &str, result: &Value) -> Result<Seen> {
    let file = directory.path().join(name).with_extension("json");
    fs::write(&file, result.to_string())?;
    browser.open(&page_of(&file, directory.path())?)?;
    Seen::of(browser)
}

/// A load in ten trials at rising rates, with all histograms, and a point for each second.
fn ten_minutes() -> Result<Value> {
    let mut result = of_file("load")?;
    let (trial, point) = (result["trials"][0].take(), result["series"]["points"][0].take());
    let trial = without(&trial, &["phase"]);
    let trials = (0..TRIALS).map(|number| {
        let mut trial = trial.clone();
        trial["achieved_rate"] = json!(1_000.5 + 250.0 * number as f64);
        trial
    });
    result["trials"] = trials.collect();
    Fill::new(3).distributions(&mut result)?;
    let points = (0..POINTS).map(|number| {
        let mut point = point.clone();
        point["at_s"] = json!(number as f64);
        point["trial"] = json!(number * TRIALS / POINTS);
        point["lost"] = json!(number % 7);
        for (place, figure) in ["p50", "p90", "p99", "p99_9", "max"].into_iter().enumerate() {
            point["rtt_ns"][figure] = json!(3_615 + 17 * number + 50_000 * place as u64);
        }
        point
    });
    result["series"] = json!({ "interval_s": 1.0, "points": points.collect::<Value>() });
    Ok(without(&result, &["search", "silences", "overload"]))
}

/// A server that was asked ten times a second, with offsets that wander.
fn many_samples() -> Result<Value> {
    let mut result = of_file("query")?;
    let sample = result["servers"][0]["samples"][0].take();
    let samples = (0..SAMPLES).map(|number| {
        let mut sample = sample.clone();
        sample["sequence"] = json!(number);
        sample["t1_ns"] = json!(1_000 + number * INTERVAL_NS);
        sample["offset_ns"] = json!((number * 7_919 % 20_011) as i64 - 10_000);
        sample["delay_ns"] = json!(90 + number * 104_729 % 5_003);
        sample
    });
    result["servers"][0]["samples"] = samples.collect();
    Ok(result)
}

fn a_page_of_ten_minutes_is_small_and_right() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(1280, 900)?;
    let mut figures = Figures::declared()?;
    let load = ten_minutes()?;
    let seen = opened(&mut browser, &directory, "load", &load)?;
    ensure!(seen.table("intervals")?.rows.len() == POINTS as usize, "not each second is shown");
    figures.check(&shows(&mut browser, &load)?, &load)?;
    let query = many_samples()?;
    let seen = opened(&mut browser, &directory, "query", &query)?;
    figures.check(&seen, &query)?;
    let complaints = browser.complaints();
    ensure!(complaints.is_empty(), "{complaints:?}");
    Ok(())
}

fn each_change_of_a_page_is_found() -> Result<()> {
    let directory = TempDir::new()?;
    let mut browser = Browser::start(1280, 900)?;
    let mut figures = Figures::declared()?;
    for changes in CHANGES.chunk_by(|a, b| a.of == b.of) {
        let of = changes.first().context("no change")?.of;
        let result = of_file(of)?;
        let seen = opened(&mut browser, &directory, of, &result)?;
        figures.check(&seen, &result).with_context(|| of.to_owned())?;
        for Change { script, about, .. } in changes {
            browser.open(&directory.path().join(of).with_extension("html"))?;
            browser.evaluate(&format!("(() => {{ {script}; }})()"))?;
            let found = figures.check(&Seen::of(&mut browser)?, &result);
            let found = found.err().with_context(|| format!("nobody finds {script}"))?;
            ensure!(format!("{found:#}").contains(about), "{script}: {found:#}");
        }
    }
    let unseen = figures.were_all_seen().err().context("not all kinds were shown")?;
    ensure!(unseen.to_string().contains("horolog.cycle/1: table tasks"), "{unseen}");
    Ok(())
}
