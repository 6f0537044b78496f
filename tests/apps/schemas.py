"""The JSON Schemas of docs/schemas, which the tests hold the command to."""

import copy
import json
import pathlib

try:
    import jsonschema
except ImportError:
    jsonschema = None

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def strict(schema):
    """The schema with no key besides those that it lists."""
    schema = copy.deepcopy(schema)
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if "properties" in part:
                part["additionalProperties"] = False
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return schema


def read_schema(name):
    schema = json.loads((DOCS / "schemas" / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def validator(schema, part=None):
    """Of a document, or of what the schema calls `part`."""
    return jsonschema.Draft202012Validator({**schema, "$ref": f"#/$defs/{part}"} if part else schema)
