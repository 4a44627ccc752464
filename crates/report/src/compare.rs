//! Comparison of results of one kind by the metrics that the kind lists.

mod conditions;
mod judge;
mod metrics;

use std::collections::{BTreeMap, HashMap};

use horolog_record::{ComparedCondition, ComparedMetric};
use serde_json::Value;

use crate::document::DescribeResult;
use crate::metrics::{MetricValue, joined};
use crate::parse::{ResultParseError, compared_values};

/// Value that is compared, of one item.
#[derive(Debug)]
pub(crate) struct ComparedValue {
    is_informational: bool,
    value: MetricValue<'static>,
}

/// Values of a result by the names of their metrics and items.
pub(crate) type ComparedValues = BTreeMap<(String, String), ComparedValue>;

/// Result of any kind, with the values that are compared.
#[derive(Debug)]
pub struct ComparableResult<'a> {
    result: &'a Value,
    values: ComparedValues,
}

impl<'a> ComparableResult<'a> {
    /// Reads the values of a result.
    ///
    /// # Errors
    ///
    /// Fails if the kind of the result is unknown, or its content is invalid or has a damaged
    /// histogram: its metrics would silently be left out.
    pub fn read(result: &'a Value) -> Result<Self, ResultParseError> {
        Ok(Self { result, values: compared_values(result)? })
    }
}

/// Metrics that two groups of results have in common, and their differences.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct ResultComparison {
    /// See [`horolog_record::RunsCompareResult::metrics`].
    pub metrics: Vec<ComparedMetric>,
    /// See [`horolog_record::RunsCompareResult::only_earlier`].
    pub only_earlier: Vec<String>,
    /// See [`horolog_record::RunsCompareResult::only_later`].
    pub only_later: Vec<String>,
    /// See [`horolog_record::RunsCompareResult::conditions`].
    pub conditions: Vec<ComparedCondition>,
}

impl ResultComparison {
    /// Compares results of one kind, one or several on each side. A metric of an item is compared
    /// if all results have it. Conditions are compared between the first results of both sides.
    #[must_use]
    pub fn compare(
        earlier: &[ComparableResult<'_>],
        later: &[ComparableResult<'_>],
        threshold: f64,
    ) -> Self {
        let values = [earlier, later].map(|side| side.iter().map(|one| &one.values).collect());
        let (metrics, only_earlier, only_later) = metrics::compare(&values, threshold);
        let conditions = earlier.first().zip(later.first());
        let conditions = conditions.map_or_else(Vec::new, |(earlier, later)| {
            conditions::differing_conditions(earlier.result, later.result)
        });
        Self { metrics, only_earlier, only_later, conditions }
    }
}

/// Returns the values of a result of a known type, and those of the results in it. Items with the
/// same name, such as two trials at one rate, are numbered. Fails with the defect of a histogram or
/// of a result in it.
pub(crate) fn values_of<R: DescribeResult + 'static>(result: &R) -> Result<ComparedValues, String> {
    let (mut all, mut numbers) = (ComparedValues::new(), HashMap::<_, u32>::new());
    for metric in R::metrics() {
        let is_informational = metric.is_informational;
        for (mut item, value) in metric.compared_values(result)? {
            let number = numbers.entry((metric.name.clone(), item.clone())).or_default();
            *number += 1;
            if *number > 1 {
                item = joined(&item, &number.to_string());
            }
            let compared = value.map(|value| ComparedValue { is_informational, value });
            all.extend(compared.map(|value| ((metric.name.clone(), item), value)));
        }
    }
    for (part, result) in result.results() {
        match compared_values(result) {
            Ok(values) => {
                let of_part = |(name, item): (String, String)| (name, joined(&part, &item));
                all.extend(values.into_iter().map(|(key, value)| (of_part(key), value)));
            }
            // This program knows no metric of it.
            Err(ResultParseError::Kind(_)) => {}
            Err(error) => return Err(format!("{part}: {error}")),
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
