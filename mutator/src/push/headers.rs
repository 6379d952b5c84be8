//! Headers for each request. Their values may be secret.

use std::fmt;
use std::path::Path;

use ureq::http::{HeaderName, HeaderValue};

use ipath_base::error::io_text;

/// The environment variable that contains a token.
const TOKEN: &str = "IPATH_PUSH_TOKEN";
/// The replacement for secret text.
const HIDDEN: &str = "[hidden]";
/// Words up to this length are not hidden, since they occur in other text.
const SHORT: usize = 4;

/// Headers by name. Their values are never shown.
#[derive(Clone, Default)]
pub struct Headers(Vec<(HeaderName, HeaderValue)>);

impl Headers {
    /// Parses headers given as `Name: value`, or `@FILE` with one header per line. The token from
    /// the environment is added as `Authorization: Bearer` unless that header is given.
    ///
    /// # Errors
    /// A message about the invalid header, without its value.
    pub fn of(named: &[String]) -> Result<Self, String> {
        let mut headers = Self::default();
        for text in named {
            match text.strip_prefix('@') {
                Some(file) => headers.add_file(Path::new(file))?,
                None => headers.add(text)?,
            }
        }
        let is_authorized = headers.0.iter().any(|(name, _)| name == "authorization");
        let token = std::env::var(TOKEN).unwrap_or_default();
        let token = token.trim();
        if !token.is_empty() && !is_authorized {
            let added = headers.add(&format!("Authorization: Bearer {token}"));
            added.map_err(|_| format!("{TOKEN} has characters that a header cannot have"))?;
        }
        Ok(headers)
    }

    fn add_file(&mut self, file: &Path) -> Result<(), String> {
        let failed = |cause: String| format!("{}: {cause}", file.display());
        let text = std::fs::read_to_string(file).map_err(|e| failed(io_text(&e)))?;
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            self.add(line).map_err(failed)?;
        }
        Ok(())
    }

    fn add(&mut self, text: &str) -> Result<(), String> {
        let wanted = "a header is `Name: value`";
        let (name, value) = text.split_once(':').ok_or(wanted)?;
        let name: HeaderName = name.trim().parse().map_err(|_| wanted)?;
        let value = HeaderValue::from_str(value.trim());
        let mut value = value.map_err(|_| {
            format!(
                "the value of {name} has characters that a header cannot \
                have"
            )
        })?;
        value.set_sensitive(true);
        self.0.push((name, value));
        Ok(())
    }

    /// All headers, including the one with the token.
    pub(super) fn iter(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        self.0.iter()
    }

    /// Replaces secret values in a text from another source.
    pub(super) fn hidden_in(&self, text: &str) -> String {
        let values = self.0.iter().filter_map(|(_, value)| value.to_str().ok());
        let words = values.flat_map(|value| std::iter::once(value).chain(value.split(' ')));
        let secret =
            words.filter(|word| word.len() > SHORT && *word != "Bearer" && *word != "Basic");
        secret.fold(text.to_owned(), |text, word| text.replace(word, HIDDEN))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|(name, _)| name.as_str());
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(texts: &[&str]) -> Result<Headers, String> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Headers::of(&texts)
    }

    #[test]
    fn what_is_secret_is_not_shown() {
        let known = headers(&["X-Scope-OrgID: team-a", "Authorization: Bearer s3cr3t"]).unwrap();
        assert_eq!(
            format!("{known:?}"),
            r#"["x-scope-orgid", "authorization"]"#
        );
        let said = known.hidden_in("Bearer s3cr3t of team-a is s3cr3t");
        assert_eq!(said, "[hidden] of [hidden] is [hidden]");
        for wrong in ["s3cr3t", "s3 cr: 3t", "A: s3\ncr3t"] {
            let error = headers(&[wrong]).unwrap_err();
            assert!(!error.contains("s3"), "{error}");
        }
    }
}
