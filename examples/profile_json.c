/* profile_json MODEL FILE: times every layer of a model, and writes the profile as JSON. */
#include <pipit/pipit_c.h>
#include <stdio.h>

int main(int argc, char** argv) {
  pipit_status* status = NULL;
  pipit_options* options = NULL;
  pipit_model* model = NULL;
  char* json = NULL;
  FILE* file = NULL;
  int code;
  if (argc != 3) {
    fprintf(stderr, "profile_json: usage: profile_json MODEL FILE\n");
    return 2;
  }
  options = pipit_options_new(&status);
  if (status == NULL) pipit_options_set(options, "threads", "1", &status);
  if (status == NULL) pipit_options_set(options, "runs", "20", &status);
  if (status == NULL) model = pipit_model_load(argv[1], options, &status);
  /* Without inputs the layers run on random numbers, always the same ones. docs/json.md explains the keys. */
  if (status == NULL) json = pipit_profile_json(model, NULL, 0, options, &status);
  code = pipit_status_code(status);
  if (code != PIPIT_OK) fprintf(stderr, "profile_json: %s\n", pipit_status_message(status));
  if (json != NULL) {
    file = fopen(argv[2], "w");
    if (file == NULL || fputs(json, file) < 0 || fclose(file) != 0) {
      perror(argv[2]);
      code = 1;
    }
  }
  pipit_string_free(json);
  pipit_model_free(model);
  pipit_options_free(options);
  pipit_status_free(status);
  return code;
}
