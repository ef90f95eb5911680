//! The SQL statements, with the parameter marks of each database.

use std::sync::LazyLock;

/// One statement: `?` marks a parameter on SQLite and MySQL, `$1` on PostgreSQL.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) question_marks: &'static str,
    pub(super) numbered: LazyLock<String>,
}

macro_rules! statements {
    ($($name:ident = $file:literal;)*) => {
        $(pub(super) static $name: Statement = Statement {
            question_marks: include_str!(concat!("../../sql/", $file, ".sql")),
            numbered: LazyLock::new(|| numbered($name.question_marks)),
        };)*
        #[cfg(test)]
        pub(super) static ALL: &[&Statement] = &[$(&$name),*];
    };
}

statements! {
    DELETE_NOVEL = "delete_novel";
    FIND_IMPORT = "find_import";
    GET_NOVEL = "get_novel";
    GET_SCENE = "get_scene";
    GET_SOURCE = "get_source";
    INSERT_CHAPTER = "insert_chapter";
    INSERT_NOVEL = "insert_novel";
    INSERT_SCENE = "insert_scene";
    LAST_SCENE = "last_scene";
    LIST_CHAPTERS = "list_chapters";
    LIST_NOVELS = "list_novels";
    LIST_SCENES = "list_scenes";
    SAVE_SUMMARY = "save_summary";
    SAVE_TEXT = "save_text";
}

/// Replaces `?` by `$1`, `$2`, …. The statements have no quoted text.
fn numbered(sql: &str) -> String {
    let mut pieces = sql.split('?');
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for (piece, number) in pieces.zip(1..) {
        text += &format!("${number}{piece}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_numbered_in_order() {
        assert_eq!(numbered("a = ? AND b = ?"), "a = $1 AND b = $2");
    }

    #[test]
    fn no_statement_has_quoted_text() {
        assert!(
            ALL.iter()
                .all(|statement| !statement.question_marks.contains('\''))
        );
    }
}
