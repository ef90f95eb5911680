//! The OpenAPI 3.1 document, made from the route table and the wire types.

use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ComponentsBuilder, Content, HttpMethod, Info, OpenApi, OpenApiBuilder, PathsBuilder, Ref,
        RefOr, Required,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem},
        request_body::RequestBodyBuilder,
        response::{Response, ResponseBuilder},
        schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type},
        security::{
            ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
        },
    },
};

use longhaul_api::Problem;

use crate::{
    identity::IdentityMode,
    route::{Policy, Route, Verb, is_live},
    router::routes,
    shapes,
};

/// The names of the two ways to show a token.
const BEARER: &str = "bearer";
const IN_ADDRESS: &str = "accessToken";

/// What a handler says of itself.
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
        let (parameters, answers, problems, schemas) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self {
            name,
            summary,
            parameters,
            body: None,
            answers,
            problems,
            schemas,
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

    /// A body that may be left out.
    pub(crate) fn optional_body<T: ToSchema>(mut self) -> Self {
        self.body = Some((self.refer::<T>(), Required::False));
        self
    }

    /// A type that an answer holds without its schema saying so.
    pub(crate) fn refers_to<T: ToSchema>(mut self) -> Self {
        let _ = self.refer::<T>();
        self
    }

    /// An answer with a body of this type.
    pub(crate) fn answer<T: ToSchema>(mut self, status: u16, what: &str) -> Self {
        let schema = self.refer::<T>();
        self.with_content(status, what, "application/json", schema)
    }

    /// A page of things of this type.
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

    /// A stream of server-sent events, whose data is of this type.
    pub(crate) fn stream<T: ToSchema>(mut self, what: &str) -> Self {
        let _ = self.refer::<T>();
        self.with_content(200, what, "text/event-stream", String::schema())
    }

    /// An answer that is text of this kind.
    pub(crate) fn text(self, kind: &str, what: &str) -> Self {
        self.with_content(200, what, kind, String::schema())
    }

    /// A file of any kind.
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
    let (mut paths, mut components) = (PathsBuilder::new(), ComponentsBuilder::new());
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

/// Who calls is known by a token; in the other modes a gateway or this machine vouches for them.
fn with_tokens(components: ComponentsBuilder) -> ComponentsBuilder {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("lh_…");
    let bearer = bearer.description(Some("`longhaul token create` makes one."));
    let why = "For browsers, which can set no header on a live route";
    let in_address = SecurityScheme::ApiKey(ApiKey::Query(ApiKeyValue::with_description(
        "access_token",
        why,
    )));
    components
        .security_scheme(BEARER, SecurityScheme::Http(bearer.build()))
        .security_scheme(IN_ADDRESS, in_address)
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
            let ways = [BEARER, IN_ADDRESS]
                .into_iter()
                .take(if is_live(route.path) { 2 } else { 1 });
            operation = operation.securities(Some(
                ways.map(|way| SecurityRequirement::new(way, [] as [&str; 0])),
            ));
        }
    }
    problems.extend(route.path.contains("{id}").then_some(404));
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

/// The noun that a path starts with; what is not of the API itself is about the server.
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
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True);
        parameter.schema(Some(shapes::of_parameter(name))).build()
    })
}

pub(crate) fn query_parameter(name: &str, what: &str) -> Parameter {
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False);
    parameter
        .description(Some(what))
        .schema(Some(shapes::of_parameter(name)))
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
    fn the_document_has_every_route_and_every_reference_leads_somewhere() {
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
                "{reference} leads nowhere"
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
            let ways = operation["security"].as_array().map_or(0, Vec::len);
            let wanted = match route.policy {
                Policy::Public => 0,
                Policy::Needs(_) => 1 + usize::from(is_live(route.path)),
            };
            assert_eq!(ways, wanted, "{}", route.path);
        }
    }

    #[test]
    fn no_two_operations_have_one_name() {
        let names: Vec<&str> = routes().iter().map(|route| (route.doc)().name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
