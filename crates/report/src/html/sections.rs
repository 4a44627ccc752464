//! Parts shared by the pages: verdict, findings, facts. Texts are passed raw and are escaped here.

use horolog_record::{Finding, Host, LimitResult, LoadResult, LoadTarget, RequestMode};

use super::escape::{each, text};
use crate::findings::{FindingGroup, grouped, severity_name, trial_label};
use crate::limits::measured;
use crate::units::{ABSENT, human_ns};
use crate::verdict::lower_bound_trial;

/// Returns the top of a page: the failures, if any, and the verdict.
pub(super) fn page_top(failed: Option<&str>, verdict: &str) -> String {
    let failed = failed
        .map_or_else(String::new, |failed| format!("<p class=\"failed\">{}</p>\n", text(failed)));
    format!("<section class=\"verdict\" aria-label=\"Verdict\">\n{failed}{verdict}</section>\n")
}

/// Returns the verdict for [`page_top`]: a name, a large value, a sentence, and latencies at that
/// rate as pairs of name and ns. All latencies are unknown if there is no trial at that rate.
pub(crate) fn verdict(
    name: &str,
    figure: &str,
    sentence: &str,
    times_ns: &[(&str, Option<u64>)],
) -> String {
    let known = times_ns.iter().filter_map(|(name, ns)| Some((name, human_ns((*ns)?))));
    let figures = each(known, |(name, value)| {
        format!("<div><dt>{}</dt><dd>{}</dd></div>", text(name), text(&value))
    });
    let figures = if figures.is_empty() {
        figures
    } else {
        format!("<p class=\"there\">At this rate:</p>\n<dl class=\"figures\">{figures}</dl>\n")
    };
    format!(
        "<p class=\"name\">{}</p>\n<p class=\"figure\">{}</p>\n<p class=\"sentence\">{}</p>\n{figures}",
        text(name),
        text(if figure == ABSENT { "not measured" } else { figure }),
        text(sentence),
    )
}

/// Returns the latencies at the rate that a run found, for [`verdict`].
pub(crate) fn times_at_lower_bound(result: &LoadResult) -> [(&'static str, Option<u64>); 5] {
    let trial = lower_bound_trial(result).map(|index| &result.trials[index]);
    let rtt = trial.and_then(|trial| trial.rtt_ns.as_ref());
    let response = trial.and_then(|trial| trial.response_time_ns.as_ref());
    [
        ("Round trip, p50", rtt.map(|d| d.p50)),
        ("Round trip, p99", rtt.map(|d| d.p99)),
        ("Round trip, p99.9", rtt.map(|d| d.p99_9)),
        ("Server's response time, p50", response.map(|d| d.p50)),
        ("Server's response time, p99", response.map(|d| d.p99)),
    ]
}

/// Returns a section with a heading; nothing if its markup is empty.
pub(crate) fn section(heading: &str, markup: &str) -> String {
    if markup.is_empty() {
        String::new()
    } else {
        format!("<section>\n<h2>{}</h2>\n{markup}</section>\n", text(heading))
    }
}

/// Returns the limits of the run, in the order of the command line.
pub(crate) fn limits(limits: &[LimitResult]) -> String {
    if limits.is_empty() {
        return String::new();
    }
    let items = each(limits, |limit| {
        let (class, verdict) = if limit.failed { ("error", "failed") } else { ("note", "passed") };
        format!(
            "<li class=\"{class}\"><span class=\"severity\">{verdict}</span><p>{}: {}</p></li>\n",
            text(&limit.expression),
            text(&measured(limit)),
        )
    });
    format!("<ul class=\"findings\">\n{items}</ul>\n")
}

/// Returns a paragraph of one line.
pub(crate) fn paragraph(line: &str) -> String {
    format!("<p>{}</p>\n", text(line))
}

/// Returns the findings as a list, the worst first.
pub(crate) fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let items = each(&grouped(findings), finding_group);
    format!("<ul class=\"findings\">\n{items}</ul>\n")
}

fn finding_group(group: &FindingGroup<'_>) -> String {
    let others = each(&group.others, |other| message(other, trial_label(other)));
    let others = match group.others.len() {
        0 => others,
        n => format!("<details><summary>{n} more of this kind</summary>{others}</details>"),
    };
    finding(group.first, trial_label(group.first), &others)
}

/// Returns a finding as an item of a list, with the given markup below it; `label` names its
/// origin.
pub(crate) fn finding(finding: &Finding, label: Option<String>, below: &str) -> String {
    let severity = severity_name(finding.severity);
    format!(
        "<li class=\"{severity}\"><span class=\"severity\">{severity}</span>{}\
         <p class=\"advice\">{}</p>{below}</li>\n",
        message(finding, label),
        text(&finding.advice),
    )
}

fn message(finding: &Finding, label: Option<String>) -> String {
    let label = label.map_or_else(String::new, |label| {
        format!(" <span class=\"trial\">({})</span>", text(&label))
    });
    format!("<p>{}{label}</p>", text(&finding.message))
}

/// Returns a list of names and values, omitting those without a value.
pub(crate) fn facts(facts: &[(&str, Option<String>)]) -> String {
    let known = facts.iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    let items =
        each(known, |(name, value)| format!("<dt>{}</dt><dd>{}</dd>\n", text(name), text(value)));
    format!("<dl class=\"facts\">\n{items}</dl>\n")
}

/// Returns the facts of the host.
pub(crate) fn host_facts(host: &Host) -> String {
    let virtualised = |yes| if yes { "yes" } else { "no" }.to_owned();
    facts(&[
        ("Kernel", host.kernel.clone()),
        ("CPU", host.cpu.clone()),
        ("Usable CPUs", Some(host.cores.to_string())),
        ("Virtual machine", host.virtualised.map(virtualised)),
        ("Clock source", host.clocksource.clone()),
        ("Frequency governor", host.governor.clone()),
    ])
}

/// Returns lists of facts in columns.
pub(crate) fn columns(lists: &[String]) -> String {
    format!("<div class=\"columns\">\n{}</div>\n", lists.concat())
}

/// Returns the words of a command; empty ones and those with white space or a single quote are
/// quoted as for a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let quoted = |word: &String| {
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c == '\'') {
            format!("'{}'", word.replace('\'', "'\\''"))
        } else {
            word.clone()
        }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the name of a kind of request.
#[must_use]
pub const fn mode_name(mode: RequestMode) -> &'static str {
    match mode {
        RequestMode::Echo => "requests to a reflector",
        RequestMode::NtpBasic => "NTP in basic mode",
        RequestMode::NtsKe => "NTS-KE exchanges",
        RequestMode::NtpNts => "NTP with NTS",
        RequestMode::PtpDelay => "PTP delay requests",
        RequestMode::PtpUnicast => "requests for unicast PTP messages",
        RequestMode::PtpNsm => "PTP NetSync Monitor",
        RequestMode::NtpInterleaved => "NTP in interleaved mode",
        RequestMode::Mix => "a mix of requests",
    }
}

/// Returns the target as `name (address:port)`, or without a name.
pub(crate) fn target_name(target: &LoadTarget) -> String {
    let socket = std::net::SocketAddr::new(target.address, target.port);
    match &target.name {
        Some(name) => format!("{name} ({socket})"),
        None => socket.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn a_command_can_be_read_back() {
        let words = ["horolog", "load", "it's here", ""].map(str::to_owned);
        assert_eq!(command_line(&words), r"horolog load 'it'\''s here' ''");
    }

    #[test]
    fn a_failure_stands_first() {
        let verdict = verdict("n", "1", "s.", &[]);
        let markup = page_top(Some("failed: a<b"), &verdict);
        assert!(markup.contains("<p class=\"failed\">failed: a&lt;b</p>\n<p class=\"name\">"));
        assert!(!page_top(None, &verdict).contains("failed"));
    }

    #[test]
    fn absent_facts_are_left_out() {
        let markup = host_facts(&fixture::load().host);
        assert!(markup.contains("<dt>Kernel</dt><dd>6.18.5</dd>"));
        assert!(!markup.contains("governor"));
    }

    #[test]
    fn a_severity_is_a_word() {
        let markup = findings(&fixture::load().findings);
        assert!(markup.contains("<span class=\"severity\">warning</span>"));
        assert_eq!(findings(&[]), "");
    }
}
