//! HTML report of a campaign: the measurements of each role over all its parts, the end of each
//! part, and the plan.

use horolog_record::{CampaignPart, CampaignResult, Distribution, MergedResults};

use super::breakdown::breakdowns;
use super::data::{headed, row};
use super::escape::{each, text};
use super::latency::{PlotTarget, tail};
use super::sections::{PageBody, drawn_alone, findings, machine, paragraph, section};
use super::{PageTemplate, headline};
use crate::campaign::{METHOD, PART_TITLES, RoleTable, figures, part, sentences};

const TABLE: &str = "parts";
const TAIL: PlotTarget =
    PlotTarget { id: "campaign-tail", title: "Time percentiles", described_by: TABLE };
/// Maximum number of lines of a plot: more cannot be distinguished.
const LINES_MAX: usize = 12;

/// Maximum number of parts whose own results are retained in the page's copy of the result.
const PARTS_MAX: usize = 16;

/// Returns the page as HTML. It holds the result as JSON in the element `result`, without the
/// parts' own results if there are more than sixteen: those are in the result file.
#[must_use]
pub fn campaign(result: &CampaignResult) -> String {
    let (plotted, plots) = drawn_alone(vec![tail(&TAIL, &distributions(result))]);
    let start = result.start.as_ref();
    let parts = each(&result.parts, |one| {
        let (name, cells) = part(one, start);
        row(&name, cells)
    });
    let of_parts = (PART_TITLES[0], &PART_TITLES[1..]);
    let sections = vec![
        ("Findings", findings(&result.findings)),
        ("Summary", each(sentences(result), |line| paragraph(&line))),
        ("Merged results", each(figures(result).iter().enumerate(), together)),
        ("Breakdown", breakdowns(result)),
        ("Distributions", plotted),
        ("Parts", headed(TABLE, "Parts; start: after the start time", of_parts, &parts)),
        ("Plan", format!("<pre>{}</pre>\n", text(&result.plan.text))),
    ];
    let body = PageBody { sections, plots };
    let run = machine(&result.command, &result.started, &result.host);
    PageTemplate {
        kind: "campaign",
        failed: None,
        heading: result.plan.name.clone(),
        lead: format!("{} Started {}.", result.plan.description, result.started),
        verdict: headline::campaign(result),
        main: body.sections() + &section("Run and host", &run),
        note: METHOD,
        schema: &result.schema,
        plots: body.plots,
        result: &without_many_results(result),
    }
    .render()
}

/// Returns a copy, without the parts' own results if there are many: they can be a hundred times as
/// large as the rest, so they are not even copied to be removed.
fn without_many_results(result: &CampaignResult) -> CampaignResult {
    let parts = match result.parts.len() {
        ..=PARTS_MAX => result.parts.clone(),
        _ => result.parts.iter().map(CampaignPart::without_result).collect(),
    };
    result.with_parts(parts)
}

fn together((number, figures): (usize, &RoleTable)) -> String {
    let rows = each(&figures.rows, |(name, cells)| row(name, cells.clone()));
    let caption = text(&figures.caption);
    let id = format!("role-{number}");
    let (name, titles) = figures.titles.split_first().unwrap_or((&"", &[]));
    paragraph(&figures.caption) + &headed(&id, &caption, (name, titles), &rows)
}

/// Returns the merged distributions by name.
fn distributions(result: &CampaignResult) -> Vec<(String, &Distribution)> {
    let mut all = Vec::new();
    for role in &result.roles {
        let name = &role.role;
        match &role.merged {
            MergedResults::Load { trials, .. } => all.extend(trials.iter().filter_map(|one| {
                let rate = crate::units::human_rate(one.trial.intended_rate);
                Some((format!("{name}, {rate}"), one.trial.rtt_ns.as_ref()?))
            })),
            MergedResults::Paths { rows, .. } => all.extend(rows.iter().filter_map(|one| {
                Some((format!("{name}, {} bytes", one.length), one.rtt_ns.as_ref()?))
            })),
            MergedResults::Relays { .. } => {}
            MergedResults::Cycles { tasks, .. } => all.extend(tasks.iter().filter_map(|one| {
                Some((format!("{name}, {}, response", one.task), one.response_ns.as_ref()?))
            })),
            MergedResults::Distributions { distributions } => all.extend(
                distributions
                    .iter()
                    .map(|one| (format!("{name}, {}", one.path), &one.distribution)),
            ),
        }
    }
    all.truncate(LINES_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::html::main_of;

    #[test]
    fn the_results_of_many_parts_are_left_to_the_file() {
        let mut result = fixture::campaign();
        result.parts[0].result = Some(serde_json::json!({ "schema": "of a part" }));
        assert!(campaign(&result).contains("of a part"));
        result.parts = vec![result.parts[0].clone(); PARTS_MAX + 1];
        assert!(!campaign(&result).contains("of a part"));
    }

    #[test]
    fn all_is_shown_and_no_text_becomes_markup() {
        let mut result = fixture::campaign();
        result.plan.text = "name = \"<script>\"".to_owned();
        result.parts[0].agent = "<img src=x>".to_owned();
        let page = campaign(&result);
        let main = main_of(&page);
        assert!(!main.contains("<script>") && !main.contains("<img"), "{main}");
        for shown in
            ["&lt;script&gt;", "&lt;img src=x&gt;", "load.2", "trials, all generators", "by child"]
        {
            assert!(main.contains(shown), "{shown}");
        }
        for first in ["intended/s", "relay", "part"] {
            let head = format!("<thead><tr><th scope=\"col\" class=\"words\">{first}</th>");
            assert!(main.contains(&head), "{first}");
        }
        assert!(!main.contains("<td></td>"), "a column without a title");
    }
}
