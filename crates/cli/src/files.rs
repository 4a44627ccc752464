//! Outputs of a measurement's result: files first, then text to standard output if no file takes
//! it.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use horolog_report::table::TableStyle;
use serde::Serialize;

use crate::ci::{self, CiArgs};
use crate::failure::CommandFailure;
use crate::output::{self, ResultDestination};
use crate::result_store::KeepArgs;

/// Output files of a result.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Write the result to FILE as JSON; '-' writes it to standard output instead of the text.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write an HTML report with plots to FILE.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    ci: CiArgs,
    #[command(flatten)]
    keep: KeepArgs,
}

impl FileArgs {
    pub(crate) fn open(&self) -> Result<ResultFiles<2>, CommandFailure> {
        self.ci.open(&[("--json", self.json.as_deref()), ("--html", self.html.as_deref())])?;
        let files = ResultFiles::open([("--json", &self.json), ("--html", &self.html)])?;
        Ok(files.with_store(&self.keep))
    }

    /// Opens the files; they must differ from the files of these other flags.
    pub(crate) fn open_with_others(
        &self,
        flag: &str,
        path: Option<&Path>,
    ) -> Result<ResultFiles<2>, CommandFailure> {
        let own = [("--json", self.json.as_deref()), ("--html", self.html.as_deref())];
        apart(&[(flag, path), own[0], own[1]])?;
        self.open()
    }
}

/// Rejects two flags that name the same file, in which one result would replace the other.
pub(crate) fn apart(flags: &[(&str, Option<&Path>)]) -> Result<(), CommandFailure> {
    let named = flags.iter().filter_map(|(name, path)| Some((*name, canonical_path((*path)?)?)));
    let named: Vec<_> = named.collect();
    for (index, (later, path)) in named.iter().enumerate() {
        if let Some((name, _)) = named[..index].iter().find(|(_, other)| other == path) {
            return Err(CommandFailure::usage(format!(
                "{name} and {later} name the same file, {}; give each its own",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The canonical path of a regular file, existing or not; `None` for standard output and for files
/// that can take several results, such as a device.
fn canonical_path(path: &Path) -> Option<PathBuf> {
    if output::is_stdout(path) || fs::metadata(path).is_ok_and(|file| !file.is_file()) {
        return None;
    }
    let whole = fs::canonicalize(path).ok().or_else(|| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = fs::canonicalize(directory.unwrap_or_else(|| Path::new("."))).ok()?;
        Some(directory.join(path.file_name()?))
    });
    Some(whole.unwrap_or_else(|| path.to_owned()))
}

/// Files opened before a measurement, so that an error is found in time, one for each form of its
/// result.
pub(crate) struct ResultFiles<const N: usize> {
    forms: [Option<ResultDestination>; N],
    takes_stdout: bool,
    keep: Option<KeepArgs>,
}

impl<const N: usize> ResultFiles<N> {
    /// Opens the files of these flags; at most one may be standard output.
    pub(crate) fn open(flags: [(&str, &Option<PathBuf>); N]) -> Result<Self, CommandFailure> {
        let named = flags.iter().filter_map(|(_, path)| path.as_deref());
        let to_stdout = named.filter(|path| output::is_stdout(path)).count();
        if to_stdout > 1 {
            let names = flags.map(|(name, _)| name);
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            return Err(CommandFailure::usage(format!(
                "only one of {} and {last} can go to standard output",
                others.join(", ")
            )));
        }
        apart(&flags.map(|(name, path)| (name, path.as_deref())))?;
        let mut forms = [const { None }; N];
        for (file, (_, path)) in forms.iter_mut().zip(flags) {
            *file = path.as_deref().map(ResultDestination::open).transpose()?;
        }
        Ok(Self { forms, takes_stdout: to_stdout > 0, keep: None })
    }

    /// Also stores the result.
    pub(crate) fn with_store(self, keep: &KeepArgs) -> Self {
        Self { keep: Some(keep.clone()), ..self }
    }

    /// Writes a result in its forms, in the order of the flags, stores it, and writes its text to
    /// standard output if nothing else goes there.
    pub(crate) fn write<R: Serialize>(
        self,
        result: &R,
        forms: [fn(&R) -> String; N],
        text: fn(&R, &TableStyle) -> String,
    ) -> Result<(), CommandFailure> {
        ci::measured(result);
        let written = self
            .forms
            .into_iter()
            .zip(forms)
            .filter_map(|(file, form)| Some(file?.write(&form(result))));
        let written: Vec<_> = written.collect();
        if let Some(keep) = &self.keep {
            keep.store_result(result, written.iter().any(Result::is_err));
        }
        // After the files: a full standard output ends the command here.
        if !self.takes_stdout {
            output::line(&text(result, &output::table_style()))?;
        }
        written.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_results_have_two_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("there"), "").unwrap();
        std::os::unix::fs::symlink(path("there"), path("link")).unwrap();
        let judged = |json: &Path, html: &Path| {
            apart(&[("--json", Some(json)), ("--html", Some(html)), ("--csv", None)])
                .map_err(|why| why.to_string())
        };
        for (json, html) in [("x", "x"), ("x", "./x"), ("there", "link")] {
            let why = judged(&path(json), &path(html)).unwrap_err();
            assert!(why.starts_with("--json and --html name the same file"), "{why}");
        }
        assert_eq!(judged(&path("x"), &path("there")), Ok(()));
        assert_eq!(judged(Path::new("/dev/null"), Path::new("/dev/null")), Ok(()));
        assert_eq!(judged(Path::new("-"), Path::new("-")), Ok(()), "told in words of its own");
    }
}
