//! What is nobody else's business: where the user's files are.

use serde_json::Value;

/// Texts that are not shown, with what stands for them.
pub(super) struct Private(Vec<(String, String)>);

impl Private {
    /// The home folder of this environment.
    pub(super) fn of_environment() -> Self {
        let home = std::env::home_dir().map(|home| home.to_string_lossy().into_owned());
        Self::of(home)
    }

    fn of(home: Option<String>) -> Self {
        let home = home.map(|home| home.trim_end_matches('/').to_owned());
        // A home of "/" is none, and every path begins with it.
        Self(home.filter(|home| !home.is_empty()).map(|home| (home, "~".to_owned())).into_iter().collect())
    }

    /// A text without them. The homes of other users are hidden, too.
    pub(super) fn hidden(&self, text: &str) -> String {
        let is_of_a_name = |c: char| c.is_alphanumeric() || "-_.@+".contains(c);
        let text = self.0.iter().fold(text.to_owned(), |text, (hidden, shown)| {
            let mut all = String::new();
            let mut done = 0;
            for (at, _) in text.match_indices(hidden) {
                // A folder of that name within another is not it.
                let path = text[..at].rsplit(|c| !is_of_a_name(c) && c != '/').next().unwrap_or_default();
                if !path.contains('/') {
                    all.extend([&text[done..at], shown]);
                    done = at + hidden.len();
                }
            }
            all + &text[done..]
        });
        let mut parts = text.split("/home/");
        let mut shown = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.find(|c| !is_of_a_name(c)).map_or("", |at| &part[at..]);
            shown.push('~');
            shown.push_str(rest);
        }
        shown
    }

    /// The same in every text of an answer.
    pub(super) fn hidden_in(&self, answer: Value) -> Value {
        match answer {
            Value::String(text) => Value::String(self.hidden(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.hidden_in(item)).collect(),
            Value::Object(fields) => {
                fields.into_iter().map(|(name, value)| (name, self.hidden_in(value))).collect()
            }
            plain => plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Private;

    #[test]
    fn homes_are_hidden_wherever_they_stand() {
        let private = Private::of(Some("/data/users/ada/".into()));
        let hidden =
            private.hidden("tried /data/users/ada/lib/libcuda.so, '/home/eve.b/x' and /home/bob: none");
        assert_eq!(hidden, "tried ~/lib/libcuda.so, '~/x' and ~: none");
        let short = Private::of(Some("/ada".into()));
        assert_eq!(short.hidden("/srv/new/ada/x and /ada/ada"), "/srv/new/ada/x and ~/ada");
        assert_eq!(short.hidden("system_root:/ada/x, -L/ada/lib"), "system_root:~/x, -L~/lib");
        for none in ["/", "//", ""] {
            assert_eq!(Private::of(Some(none.into())).hidden("/x"), "/x");
        }
        let answer = serde_json::json!({"a": ["/home/eve/x", 3], "b": {"c": "/data/users/ada"}});
        assert_eq!(private.hidden_in(answer), serde_json::json!({"a": ["~/x", 3], "b": {"c": "~"}}));
    }
}
