//! Builds the OpenAPI 3.1 document from the route table and the wire types. Each handler describes
//! itself with a [`Doc`] beside it.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ComponentsBuilder, Content, HttpMethod, Info, OpenApi, OpenApiBuilder, PathsBuilder, Ref,
        RefOr, Required,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem},
        request_body::RequestBodyBuilder,
        response::{Response, ResponseBuilder},
        schema::{ArrayBuilder, Object, ObjectBuilder, Schema, SchemaType, Type},
        security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        },
    },
};

use longhaul_api::Problem;

use crate::{
    identity::IdentityMode,
    parameter_schemas,
    route::{Policy, Route, Verb, is_live},
    router::routes,
};

/// The names of the two security schemes.
const BEARER: &str = "bearer";
const IN_QUERY: &str = "accessToken";

/// The documentation of one endpoint.
pub(crate) struct Doc {
    name: &'static str,
    summary: &'static str,
    parameters: Vec<Parameter>,
    body: Option<(RefOr<Schema>, Required)>,
    answers: Vec<(u16, Response)>,
    problems: Vec<u16>,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Doc {
    pub(crate) fn new(name: &'static str, summary: &'static str) -> Self {
        Self {
            name,
            summary,
            parameters: Vec::new(),
            body: None,
            answers: Vec::new(),
            problems: Vec::new(),
            schemas: Vec::new(),
        }
    }

    pub(crate) fn parameters(mut self, parameters: Vec<Parameter>) -> Self {
        self.parameters.extend(parameters);
        self
    }

    pub(crate) fn body<T: ToSchema>(mut self) -> Self {
        self.body = Some((self.refer::<T>(), Required::True));
        self
    }

    /// A body that may be absent.
    pub(crate) fn optional_body<T: ToSchema>(mut self) -> Self {
        self.body = Some((self.refer::<T>(), Required::False));
        self
    }

    /// Adds a type that is used without being in the schema of a body or an answer.
    pub(crate) fn refers_to<T: ToSchema>(mut self) -> Self {
        let _ = self.refer::<T>();
        self
    }

    /// An answer with a body of this type.
    pub(crate) fn answer<T: ToSchema>(mut self, status: u16, what: &str) -> Self {
        let schema = self.refer::<T>();
        self.with_content(status, what, "application/json", schema)
    }

    /// A page of items of this type.
    pub(crate) fn page<T: ToSchema>(mut self, what: &str) -> Self {
        let items = ArrayBuilder::new().items(self.refer::<T>());
        let cursor =
            ObjectBuilder::new().schema_type(SchemaType::from_iter([Type::String, Type::Null]));
        let page = ObjectBuilder::new()
            .property("items", items)
            .required("items")
            .property("nextCursor", cursor)
            .required("nextCursor");

        self.with_content(200, what, "application/json", page.into())
    }

    /// A stream of server-sent events with data of this type.
    pub(crate) fn stream<T: ToSchema>(mut self, what: &str) -> Self {
        let _ = self.refer::<T>();
        self.with_content(200, what, "text/event-stream", String::schema())
    }

    /// A text of this media type.
    pub(crate) fn text(self, kind: &str, what: &str) -> Self {
        self.with_content(200, what, kind, String::schema())
    }

    /// A file of any media type.
    pub(crate) fn file(self, what: &str) -> Self {
        self.with_content(200, what, "application/octet-stream", String::schema())
    }

    /// An answer without a body.
    pub(crate) fn empty(mut self, status: u16, what: &str) -> Self {
        self.answers.push((status, Response::new(what)));
        self
    }

    pub(crate) fn problems(mut self, statuses: &[u16]) -> Self {
        self.problems.extend(statuses);
        self
    }

    fn with_content(mut self, status: u16, what: &str, kind: &str, schema: RefOr<Schema>) -> Self {
        let response = ResponseBuilder::new()
            .description(what)
            .content(kind, Content::new(Some(schema)));
        self.answers.push((status, response.build()));
        self
    }

    fn refer<T: ToSchema>(&mut self) -> RefOr<Schema> {
        T::schemas(&mut self.schemas);
        self.schemas.push((T::name().into_owned(), T::schema()));
        Ref::from_schema_name(T::name()).into()
    }
}

pub(crate) fn document(mode: &IdentityMode) -> OpenApi {
    let mut paths = PathsBuilder::new();
    let mut components = ComponentsBuilder::new();
    for route in routes() {
        let doc = (route.doc)();
        for (name, schema) in &doc.schemas {
            components = components.schema(name, schema.clone());
        }
        let item = PathItem::new(method(route.verb), operation(&route, doc, mode));
        paths = paths.path(route.path, item);
    }

    let mut schemas = vec![(Problem::name().into_owned(), Problem::schema())];
    Problem::schemas(&mut schemas);
    components = components.schemas_from_iter(schemas);
    if *mode == IdentityMode::Tokens {
        components = with_tokens(components);
    }

    OpenApiBuilder::new()
        .info(Info::new("Longhaul", env!("CARGO_PKG_VERSION")))
        .paths(paths)
        .components(Some(components.build()))
        .build()
}

/// Adds the security schemes. Only the mode with tokens has any.
fn with_tokens(components: ComponentsBuilder) -> ComponentsBuilder {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("lh_…");
    let bearer = bearer.description(Some("`longhaul token create` makes one."));
    let why = "For browsers, which cannot set headers on a live route";
    let in_query = SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::with_description(
        "access_token",
        why,
    )));

    components
        .security_scheme(BEARER, SecurityScheme::Http(bearer.build()))
        .security_scheme(IN_QUERY, in_query)
}

fn operation(route: &Route, doc: Doc, mode: &IdentityMode) -> OperationBuilder {
    let mut operation = OperationBuilder::new()
        .operation_id(Some(doc.name))
        .summary(Some(doc.summary))
        .tag(tag(route.path))
        .parameters(Some(path_parameters(route.path).chain(doc.parameters)));

    if let Some((schema, required)) = doc.body {
        let body =
            RequestBodyBuilder::new().content("application/json", Content::new(Some(schema)));
        operation = operation.request_body(Some(body.required(Some(required)).build()));
    }

    for (status, response) in doc.answers {
        operation = operation.response(status.to_string(), response);
    }

    let mut problems = doc.problems;
    if let Policy::Needs(scope) = route.policy {
        operation = operation.description(Some(format!("Needs the scope `{}`.", scope.as_str())));
        problems.extend([401, 403, 429]);
        if *mode == IdentityMode::Tokens {
            let schemes: &[&str] = if is_live(route.path) {
                &[BEARER, IN_QUERY]
            } else {
                &[BEARER]
            };
            let securities = schemes
                .iter()
                .map(|scheme| SecurityRequirement::new(*scheme, [] as [&str; 0]));
            operation = operation.securities(Some(securities));
        }
    }

    if route.path.contains("{id}") {
        problems.push(404);
    }
    for status in problems {
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let problem = ResponseBuilder::new()
            .description("A problem")
            .content("application/problem+json", content);
        operation = operation.response(status.to_string(), problem.build());
    }

    operation
}

const fn method(verb: Verb) -> HttpMethod {
    match verb {
        Verb::Get => HttpMethod::Get,
        Verb::Post => HttpMethod::Post,
        Verb::Patch => HttpMethod::Patch,
        Verb::Delete => HttpMethod::Delete,
    }
}

/// The tag of an operation: the first noun of its path, or `server` outside the API.
fn tag(path: &str) -> &str {
    path.strip_prefix("/api/")
        .and_then(|rest| rest.split('/').next())
        .unwrap_or("server")
}

fn path_parameters(path: &str) -> impl Iterator<Item = Parameter> {
    let named = path
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split('}').next());

    named.map(|name| {
        let schema = match name {
            "id" => parameter_schemas::uuid(),
            "name" => parameter_schemas::label(),
            _ => parameter_schemas::text(),
        };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True);
        parameter.schema(Some(schema)).build()
    })
}

pub(crate) fn query_parameter(name: &str, what: &str, schema: Object) -> Parameter {
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False);
    parameter
        .description(Some(what))
        .schema(Some(schema))
        .build()
}

pub(crate) fn header_parameter(name: &str, what: &str) -> Parameter {
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False);
    parameter
        .description(Some(what))
        .schema(Some(String::schema()))
        .build()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &serde_json::Value, found: &mut BTreeSet<String>) {
        if let Some(map) = value.as_object() {
            found.extend(
                map.get("$ref")
                    .and_then(|to| to.as_str())
                    .map(str::to_owned),
            );
            map.values().for_each(|inner| references(inner, found));
        }

        value
            .as_array()
            .into_iter()
            .flatten()
            .for_each(|inner| references(inner, found));
    }

    #[test]
    fn the_document_has_every_route_and_resolves_every_reference() {
        let document = serde_json::to_value(document(&IdentityMode::Dev)).unwrap();
        assert_eq!(document["openapi"], "3.1.0");
        for route in routes() {
            let operation = &document["paths"][route.path][route.verb.as_str().to_lowercase()];
            assert!(
                operation["responses"].is_object(),
                "{} {}",
                route.verb.as_str(),
                route.path
            );
        }

        let mut found = BTreeSet::new();
        references(&document, &mut found);
        assert!(found.contains("#/components/schemas/Problem"));
        for reference in found {
            assert!(
                document.pointer(&reference[1..]).is_some(),
                "{reference} is not in the document"
            );
        }
    }

    #[test]
    fn with_tokens_every_route_says_whether_it_needs_one() {
        let document = serde_json::to_value(document(&IdentityMode::Tokens)).unwrap();
        assert_eq!(
            document["components"]["securitySchemes"][BEARER]["scheme"],
            "bearer"
        );

        for route in routes() {
            let operation = &document["paths"][route.path][route.verb.as_str().to_lowercase()];
            let schemes = operation["security"].as_array().map_or(0, Vec::len);
            let wanted = match route.policy {
                Policy::Public => 0,
                Policy::Needs(_) => 1 + usize::from(is_live(route.path)),
            };
            assert_eq!(schemes, wanted, "{}", route.path);
        }
    }

    #[test]
    fn operation_names_are_unique() {
        let names: Vec<&str> = routes().iter().map(|route| (route.doc)().name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
