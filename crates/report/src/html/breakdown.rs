//! Bars of the breakdowns of a campaign, the worst at the top.

use horolog_record::CampaignResult;

use super::bars::{bar, row, table};
use super::escape::each;
use super::sections::paragraph;
use crate::breakdown::{self, RoleRanking};

/// Maximum number of bars per role; of the others only the number is stated.
const BARS_MAX: usize = 40;

/// Returns the bars for each role whose breakdown has several rows.
pub(crate) fn breakdowns(result: &CampaignResult) -> String {
    each(breakdown::breakdowns(result), |bars| drawn(&bars))
}

fn drawn(bars: &RoleRanking) -> String {
    let rows = each(bars.all.iter().take(BARS_MAX), |breakdown_row| {
        let share = (bars.full > 0.0).then(|| breakdown_row.size / bars.full);
        row(&breakdown_row.name, breakdown_row.numbers.each_ref().map(String::as_str), &bar(share))
    });
    let [name, first, second] = bars.titles;
    let left = bars.all.len().saturating_sub(BARS_MAX);
    let left = match left {
        0 => String::new(),
        _ => paragraph(&format!("{left} more were better than these.")),
    };
    paragraph(&bars.about) + &table([name, first, second, ""], &rows) + &left
}

#[cfg(test)]
mod tests {
    use horolog_record::CampaignInstanceResult;
    use serde_json::{Value, json};

    use super::*;
    use crate::fixture;

    /// The names of the bars, from the top, of a role alone.
    fn names(result: &CampaignResult, role: &str) -> Vec<String> {
        let mut result = result.clone();
        result.roles.retain(|one| one.role == role);
        let markup = breakdowns(&result);
        let rows = markup.split("<th scope=\"row\">").skip(1);
        rows.map(|row| row.split_once('<').unwrap().0.to_owned()).collect()
    }

    fn with_parts(role: &str, results: &[Value]) -> CampaignResult {
        let mut result: CampaignResult = fixture::sample("campaign");
        let part = result.parts[0].clone();
        let numbered = |(number, own): (usize, &Value)| CampaignInstanceResult {
            job: format!("{role}.{number}"),
            role: role.to_owned(),
            result: Some(own.clone()),
            ..part.clone()
        };
        result.parts = results.iter().enumerate().map(numbered).collect();
        result
    }

    #[test]
    fn the_slowest_generator_is_on_top() {
        let own = |p99| json!({"sent": 100, "lost": 1, "rtt_ns": {"p99": p99, "max": 9}});
        let of = |p99| json!({"trials": [own(1), own(1), own(p99)]});
        let without = json!({"trials": [own(99)]});
        let result = with_parts("load", &[of(20), of(40), without, of(30), json!({"trials": 7})]);
        let on = |number| format!("load.{number} on n1");
        assert_eq!(names(&result, "load"), [on(1), on(3), on(0)]);
        let markup = breakdowns(&result);
        assert!(markup.contains("width:75.00%") && markup.contains("1.00%"), "{markup}");
    }

    #[test]
    fn a_distribution_is_read_where_it_stands() {
        let of = |p99| json!({"cores": [{"latency_ns": {"p99": p99, "max": 50}}]});
        let result = with_parts("timer", &[of(10), of(40), json!({"cores": []})]);
        assert_eq!(names(&result, "timer"), ["timer.1 on n1", "timer.0 on n1"]);
    }

    #[test]
    fn paths_nodes_and_children_are_compared() {
        let result: CampaignResult = fixture::sample("campaign");
        assert_eq!(names(&result, "probe"), ["n1 to n2", "n2 to n1"]);
        assert_eq!(names(&result, "lead"), ["node1, task", "member1, task"]);
        let child = |to: &str| format!("relay.1 on n1 to {to}");
        assert_eq!(names(&result, "relay"), [child("relay.2"), child("192.0.2.10:5000")]);
        // A single generator has no other to compare it with.
        assert_eq!(names(&result, "load"), [""; 0]);
    }

    #[test]
    fn the_best_of_many_are_left_to_the_table() {
        let of = |p99: usize| json!({"cores": [{"latency_ns": {"p99": p99, "max": 50}}]});
        let many: Vec<_> = (0..BARS_MAX + 3).map(of).collect();
        let result = with_parts("timer", &many);
        assert_eq!(names(&result, "timer").len(), BARS_MAX);
        assert!(breakdowns(&result).contains("3 more were better"));
    }
}
