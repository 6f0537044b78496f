/* label MODEL IMAGE: what the image shows, the most probable class first, in C. */
#include <pipit/pipit_c.h>
#include <stdio.h>

int main(int argc, char** argv) {
  pipit_status* status = NULL;
  pipit_classifier* classifier = NULL;
  pipit_predictions* predictions = NULL;
  size_t i;
  int code;
  if (argc != 3) {
    fprintf(stderr, "label: usage: label MODEL IMAGE\n");
    return 2;
  }
  classifier = pipit_classifier_load(argv[1], NULL, &status);
  if (status == NULL) predictions = pipit_classifier_classify_file(classifier, argv[2], 5, &status);
  for (i = 0; i < pipit_predictions_count(predictions); ++i)
    printf("%5.1f %%  %s\n", 100 * pipit_predictions_probability(predictions, i),
           pipit_predictions_label(predictions, i));
  code = pipit_status_code(status);
  if (code != PIPIT_OK) fprintf(stderr, "label: %s\n", pipit_status_message(status));
  pipit_predictions_free(predictions);
  pipit_classifier_free(classifier);
  pipit_status_free(status);
  return code;
}
